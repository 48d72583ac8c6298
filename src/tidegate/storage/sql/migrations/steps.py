"""Steps of migrations that may be repeated.

MySQL and MariaDB commit after every change of the schema, so a migration that is cut off leaves its first half behind.
Each step here looks first whether it was done: the migration simply runs again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from alembic import op
from sqlalchemy import Column, ColumnElement, TableClause, inspect, literal_column
from sqlalchemy.schema import SchemaItem


def create_table(name: str, *items: SchemaItem, options: Mapping[str, Any]) -> None:
    """Make a table, unless it is there."""
    if not inspect(op.get_bind()).has_table(name):
        op.create_table(name, *items, **options)


def create_index(table: str, columns: Sequence[str]) -> None:
    """Make an index, named after its table and columns, unless it is there."""
    name = _index_name(table, columns)
    if name not in _indexes(table):
        op.create_index(name, table, list(columns))


def drop_index(table: str, columns: Sequence[str]) -> None:
    """Remove an index that `create_index` made, unless it is gone."""
    name = _index_name(table, columns)
    if name in _indexes(table):
        op.drop_index(name, table)


def add_column(table: str, column: Column[Any]) -> None:
    """Add a column, unless it is there. It needs a default of the server's, or may be NULL: there may be rows."""
    if column.name not in {present["name"] for present in inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)


def _index_name(table: str, columns: Sequence[str]) -> str:
    return "_".join(["ix", table, *columns])


def _indexes(table: str) -> set[str | None]:
    return {index["name"] for index in inspect(op.get_bind()).get_indexes(table)}


_RANDOM = {"sqlite": "abs(random() % 2147483648)", "postgresql": "floor(random() * 2147483648)"}


def random_integer() -> ColumnElement[int]:
    """A random number from 0 to 2^31 - 1, another one for each row."""
    return literal_column(_RANDOM.get(op.get_bind().dialect.name, "floor(rand() * 2147483648)"))


def fill(table: TableClause, **values: ColumnElement[Any]) -> None:
    """Set columns that this migration added, in the rows that are there."""
    op.execute(table.update().values(**values))
