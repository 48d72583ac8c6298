"""Steps of migrations that may be repeated.

MySQL and MariaDB commit after every change of the schema, so a migration that is cut off leaves its first half behind.
Each step here looks first whether it was done: the migration simply runs again.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from alembic import op
from sqlalchemy import Column, ColumnElement, TableClause, inspect, literal_column, text
from sqlalchemy.schema import SchemaItem


def create_table(name: str, *items: SchemaItem, options: Mapping[str, Any]) -> None:
    """Make a table, unless it is there."""
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


def drop_index(table: str, columns: Sequence[str]) -> None:
    """Remove an index that `create_index` made, unless it is gone."""
    name = _index_name(table, columns)
    if name in _indexes(table):
        op.drop_index(name, table)


def add_column(table: str, column: Column[Any]) -> None:
    """Add a column, unless it is there. It needs a default of the server's, or may be NULL: there may be rows."""
    if column.name not in _columns(table):
        op.add_column(table, column)


def rename_column(table: str, old: str, new: str) -> None:
    """Rename a column, unless that was done."""
    if old in _columns(table):
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")


def drop_default(table: str, column: str) -> None:
    """Remove a default that only the rows that were there needed."""
    if op.get_bind().dialect.name == "sqlite":
        with op.batch_alter_table(table, recreate="always") as batch:
            batch.alter_column(column, server_default=None)
    else:
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT")


def change_primary_key(table: str, columns: Sequence[str]) -> None:
    """Give a table another primary key, unless it has that one."""
    present = inspect(op.get_bind()).get_pk_constraint(table)
    if present["constrained_columns"] == list(columns):
        return
    match op.get_bind().dialect.name:
        case "sqlite":
            # SQLAlchemy warns that the key differs from the one that it read, which is the purpose.
            with warnings.catch_warnings(action="ignore"), op.batch_alter_table(table, recreate="always") as batch:
                batch.create_primary_key(f"pk_{table}", list(columns))
        case "postgresql":
            op.drop_constraint(f"pk_{table}", table, type_="primary")
            op.create_primary_key(f"pk_{table}", table, list(columns))
        case _:  # in one statement: a table without a key is not replicated
            op.execute(f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(columns)})")


def change_unique(table: str, old: Sequence[str], new: Sequence[str]) -> None:
    """Replace a unique constraint, named after its table and columns, by another one, unless that was done."""
    present = {constraint["name"] for constraint in inspect(op.get_bind()).get_unique_constraints(table)}
    before, after = ("_".join(["uq", table, *columns]) for columns in (old, new))
    if op.get_bind().dialect.name == "sqlite":
        if before in present:
            with op.batch_alter_table(table, recreate="always") as batch:
                batch.drop_constraint(before, type_="unique")
                batch.create_unique_constraint(after, list(new))
        return
    if after not in present:
        op.create_unique_constraint(after, table, list(new))
    if before in present:
        op.drop_constraint(before, table, type_="unique")


def _columns(table: str) -> set[str]:
    return {present["name"] for present in inspect(op.get_bind()).get_columns(table)}


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
