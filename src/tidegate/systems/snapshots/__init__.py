"""Snapshots of a rate-limited upstream: readers never wait for it, and its limits are never exceeded."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.snapshots.model import FoundSubject, MissingSubject, SnapshotKind, UnreadableAnswer
    from tidegate.systems.snapshots.service import Snapshots, open_snapshots
    from tidegate.systems.snapshots.settings import SnapshotSettings

__all__ = [
    "FoundSubject",
    "MissingSubject",
    "SnapshotKind",
    "SnapshotSettings",
    "Snapshots",
    "UnreadableAnswer",
    "open_snapshots",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.snapshots.model": "FoundSubject MissingSubject SnapshotKind UnreadableAnswer",
        "tidegate.systems.snapshots.service": "Snapshots open_snapshots",
        "tidegate.systems.snapshots.settings": "SnapshotSettings",
    },
)
