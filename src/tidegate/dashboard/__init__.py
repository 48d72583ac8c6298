"""What the deployment knows about itself, for the person on call: a page, and what it shows."""

from tidegate.dashboard.opening import Dashboard, open_dashboard

__all__ = ["Dashboard", "open_dashboard"]
