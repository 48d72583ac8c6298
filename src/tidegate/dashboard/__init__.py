"""The dashboard for operators: a page, and the API routes and live topics behind it."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.dashboard.service import Dashboard, open_dashboard

__all__ = ["Dashboard", "open_dashboard"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.dashboard.service": "Dashboard open_dashboard",
    },
)
