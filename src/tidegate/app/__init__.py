"""Where the parts meet: settings in, a running process out."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.app.collection import Collection, open_collection
    from tidegate.app.connections import open_database, open_valkey
    from tidegate.app.parts import Parts, open_parts, put_together
    from tidegate.app.process import build_process
    from tidegate.app.snapshots import Snapshots, open_snapshots
    from tidegate.app.sources import SourceCollection, open_sources

__all__ = [
    "Collection",
    "Parts",
    "Snapshots",
    "SourceCollection",
    "build_process",
    "open_collection",
    "open_database",
    "open_parts",
    "open_snapshots",
    "open_sources",
    "open_valkey",
    "put_together",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.app.collection": "Collection open_collection",
        "tidegate.app.connections": "open_database open_valkey",
        "tidegate.app.parts": "Parts open_parts put_together",
        "tidegate.app.process": "build_process",
        "tidegate.app.snapshots": "Snapshots open_snapshots",
        "tidegate.app.sources": "SourceCollection open_sources",
    },
)
