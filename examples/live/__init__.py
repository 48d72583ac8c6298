"""All five systems at work, so that there is something to see on the dashboard: `make dashboard`."""
