"""What the deployment knows about itself, for the person on call: a page, and what it shows."""
