"""Documents as typed tables in DuckDB, PostgreSQL, Parquet or JSON Lines, kept up to date."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.storage.documents.sync.destination import Address, SyncFailed, parse_destination
    from tidegate.storage.documents.sync.synchronizer import Progress, SyncOrder, SyncReport, TableReport, sync

__all__ = [
    "Address",
    "Progress",
    "SyncFailed",
    "SyncOrder",
    "SyncReport",
    "TableReport",
    "parse_destination",
    "sync",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.storage.documents.sync.destination": "Address SyncFailed parse_destination",
        "tidegate.storage.documents.sync.synchronizer": "Progress SyncOrder SyncReport TableReport sync",
    },
)
