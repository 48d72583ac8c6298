"""Runs, snapshots, statistics, credentials, quotas, dead letters and metrics over HTTP."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.http.binding import Binding
    from tidegate.http.serving import serve_collection, serve_operations, serve_snapshots

__all__ = ["Binding", "serve_collection", "serve_operations", "serve_snapshots"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.http.binding": "Binding",
        "tidegate.http.serving": "serve_collection serve_operations serve_snapshots",
    },
)
