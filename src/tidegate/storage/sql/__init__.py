"""SQL databases: transactions as functions, the schema and its migrations, the outbox."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.storage.sql.engine import Database
    from tidegate.storage.sql.schema import (
        NUMBERED_TABLE_OPTIONS,
        TABLE_OPTIONS,
        UtcDateTime,
        ascending_key,
        exact_text,
    )
    from tidegate.storage.sql.transaction import Transaction

__all__ = [
    "NUMBERED_TABLE_OPTIONS",
    "TABLE_OPTIONS",
    "Database",
    "Transaction",
    "UtcDateTime",
    "ascending_key",
    "exact_text",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.storage.sql.engine": "Database",
        "tidegate.storage.sql.schema": "NUMBERED_TABLE_OPTIONS TABLE_OPTIONS UtcDateTime ascending_key exact_text",
        "tidegate.storage.sql.transaction": "Transaction",
    },
)
