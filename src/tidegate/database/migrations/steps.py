"""Steps of migrations that may be repeated.

MySQL and MariaDB commit after every change of the schema, so a migration that is cut off leaves its first half behind.
Each step here looks first whether it was done: the migration simply runs again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from alembic import op
from sqlalchemy import Column, inspect
from sqlalchemy.schema import SchemaItem


def create_table(name: str, *items: SchemaItem, options: Mapping[str, Any]) -> None:
    """Make a table, unless it is there."""
    if not inspect(op.get_bind()).has_table(name):
        op.create_table(name, *items, **options)


def create_index(table: str, columns: Sequence[str]) -> None:
    """Make an index, named after its table and columns, unless it is there."""
    name = "_".join(["ix", table, *columns])
    if name not in {index["name"] for index in inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, list(columns))


def add_column(table: str, column: Column[Any]) -> None:
    """Add a column, unless it is there. It needs a default of the server's, or may be NULL: there may be rows."""
    if column.name not in {present["name"] for present in inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)
