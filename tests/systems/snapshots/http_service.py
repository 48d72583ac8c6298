"""Snapshots behind HTTP, in this process."""

from tidegate.app.serving import serve_systems
from tidegate.http import Binding
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.systems.snapshots.service import OpenSnapshots, Snapshots


def serve_snapshots(snapshots: Snapshots, settings: HttpSettings, binding: Binding) -> HttpService:
    """A service that answers for snapshots."""
    opened = OpenSnapshots(snapshots.parts, snapshots)
    return serve_systems(snapshots.parts, [opened], binding, settings=settings)
