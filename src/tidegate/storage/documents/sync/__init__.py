"""Documents as typed tables in DuckDB, PostgreSQL, Parquet or JSON Lines, kept up to date."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.storage.documents.sync.destination import DestinationAddress, SyncFailed, parse_destination
    from tidegate.storage.documents.sync.synchronizer import SyncOrder, SyncProgress, SyncReport, TableReport, sync

__all__ = [
    "DestinationAddress",
    "SyncFailed",
    "SyncOrder",
    "SyncProgress",
    "SyncReport",
    "TableReport",
    "parse_destination",
    "sync",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.storage.documents.sync.destination": "DestinationAddress SyncFailed parse_destination",
        "tidegate.storage.documents.sync.synchronizer": "SyncProgress SyncOrder SyncReport TableReport sync",
    },
)
