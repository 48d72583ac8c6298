"""Runs, snapshots, statistics, credentials, quotas, dead letters and metrics over HTTP."""

from tidegate.http.binding import Binding
from tidegate.http.serving import serve_collection, serve_operations, serve_snapshots

__all__ = ["Binding", "serve_collection", "serve_operations", "serve_snapshots"]
