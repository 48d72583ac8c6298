"""Schedules and triggers: start runs at due times, or on request of another program."""
