"""Functions for the SQL statements of the destinations DuckDB and PostgreSQL."""

from collections.abc import Mapping, Sequence

from tidegate.storage.documents.export.columns import Column, Type
from tidegate.storage.documents.sync.destination import SyncFailed
from tidegate.storage.documents.sync.table import SyncTable

Declared = Mapping[Type, str]
"""The type of a column in a destination, as its catalogue writes it."""


def quoted(name: str) -> str:
    """`name` as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def added_columns(
    shown: str, table: SyncTable, present: Mapping[str, str], types: Declared, *, full: bool
) -> Sequence[Column] | None:
    """The columns that a table lacks; None where it has to be created again because a column has another type.

    Columns that the source does not declare any more stay, and are empty in new rows. Raises `SyncFailed` where a
    column has another type, unless `full` is set.
    """
    for column in table.columns:
        found = present.get(column.name)
        if found is not None and found.lower() != types[column.type].lower():
            if full:
                return None
            raise SyncFailed(
                shown,
                f"the column {column.name} of {table.source}.{table.kind} is {found}, and the source declares "
                f"{types[column.type]}",
                "Create the table again with --full",
            )
    return [column for column in table.columns if column.name not in present]
