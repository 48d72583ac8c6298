"""Where the parts meet: settings in, a running process out."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.assembly.collection import Collection, open_collection
    from tidegate.assembly.connections import open_database, open_valkey
    from tidegate.assembly.parts import Parts, open_parts, put_together
    from tidegate.assembly.process import build_process
    from tidegate.assembly.snapshots import Snapshots, open_snapshots
    from tidegate.assembly.sources import SourceCollection, open_sources

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
        "tidegate.assembly.collection": "Collection open_collection",
        "tidegate.assembly.connections": "open_database open_valkey",
        "tidegate.assembly.parts": "Parts open_parts put_together",
        "tidegate.assembly.process": "build_process",
        "tidegate.assembly.snapshots": "Snapshots open_snapshots",
        "tidegate.assembly.sources": "SourceCollection open_sources",
    },
)
