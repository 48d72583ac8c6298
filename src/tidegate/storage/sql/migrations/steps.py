"""Steps of migrations that may be repeated.

MySQL and MariaDB commit after every change of the schema, so a migration that is cut off leaves its first half behind.
Each step checks first whether it was done, so the migration can be run again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from alembic import op
from sqlalchemy import inspect, text
from sqlalchemy.schema import SchemaItem


def create_table(name: str, *items: SchemaItem, options: Mapping[str, Any]) -> None:
    """Create a table, unless it exists."""
    if not inspect(op.get_bind()).has_table(name):
        op.create_table(name, *items, **options)


def create_index(table: str, columns: Sequence[str], *, only_with: str | None = None) -> None:
    """Make an index, named after its table and columns, unless it is there.

    It has only the rows in which the column `only_with` is set; on MySQL and MariaDB, which cannot do that, all rows.
    """
    name = _index_name(table, columns)
    condition = None if only_with is None else text(f"{only_with} IS NOT NULL")
    if name not in _indexes(table):
        op.create_index(name, table, list(columns), sqlite_where=condition, postgresql_where=condition)


def _index_name(table: str, columns: Sequence[str]) -> str:
    return "_".join(["ix", table, *columns])


def _indexes(table: str) -> set[str | None]:
    return {index["name"] for index in inspect(op.get_bind()).get_indexes(table)}
