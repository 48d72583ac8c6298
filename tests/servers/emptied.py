"""Databases that serve again: what a test wrote is taken out, in a fraction of the time that a new database takes.

One whose tables, settings or first rows are not what they were does not serve again.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import asyncpg
from asyncmy.errors import OperationalError

from tests.servers.sql import PASSWORD, MariaDb, Postgres, SqlServer


class Emptier(Protocol):
    """Knows how the databases of its server are when they are new."""

    async def empty(self, name: str) -> bool:
        """Break off whoever still uses this database, and make it as good as new; False if that cannot be."""
        ...


async def emptier_of(server: SqlServer, template: str) -> Emptier:
    """For databases that began as copies of `template`, which nobody uses."""
    match server:
        case Postgres():
            return await PostgresEmptier.like(server, template)
        case MariaDb():
            return await MariaDbEmptier.like(server, template)
        case _:
            raise AssertionError(server)


class PostgresEmptier:
    """Tables are truncated, and sequences begin anew."""

    _TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    _SHAPE = """
        SELECT string_agg(part, ';' ORDER BY part) FROM (
            SELECT concat_ws(' ', relname, relkind, relhastriggers, attname, atttypid, attnotnull, atthasdef) AS part
            FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
            WHERE relnamespace = 'public'::regnamespace
            UNION ALL SELECT conname FROM pg_constraint
            UNION ALL SELECT array_to_string(setconfig, ',') FROM pg_db_role_setting
            WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
        ) AS parts
    """
    _BREAK_OFF = """
        SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    _BEGIN_ANEW = """
        SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
        FROM pg_sequences WHERE last_value IS NOT NULL
    """

    def __init__(self, server: Postgres, shape: str, look: str, first: Mapping[str, str]) -> None:
        self._server, self._shape, self._look, self._first = server, shape, look, first

    @classmethod
    async def like(cls, server: Postgres, template: str) -> "PostgresEmptier":
        """See `emptier_of`."""
        async with _on_postgres(server, template) as connection:
            tables = [name for (name,) in await connection.fetch(cls._TABLES)]
            look = " UNION ALL ".join(f"(SELECT '{name}' FROM {name} LIMIT 1)" for name in tables)
            filled = [name for (name,) in await connection.fetch(look)]
            first = {name: await cls._rows(connection, name) for name in filled}
            return cls(server, await connection.fetchval(cls._SHAPE), look, first)

    async def empty(self, name: str) -> bool:
        """See `Emptier`."""
        async with _on_postgres(self._server, name) as connection:
            await connection.execute(self._BREAK_OFF)
            if await connection.fetchval(self._SHAPE) != self._shape:
                return False
            if {table: await self._rows(connection, table) for table in self._first} != self._first:
                return False
            if written := {table for (table,) in await connection.fetch(self._look)} - set(self._first):
                await connection.execute(f"TRUNCATE {', '.join(sorted(written))} CASCADE")
            await connection.execute(self._BEGIN_ANEW)
            return True

    @staticmethod
    async def _rows(connection: Any, table: str) -> str:
        return await connection.fetchval(f"SELECT string_agg(t::text, ';' ORDER BY t::text) FROM {table} AS t")


class MariaDbEmptier:
    """Tables that have rows, or whose numbers have advanced, are truncated."""

    _COLUMNS = """
        SELECT table_name, column_name, column_type, is_nullable, column_key, column_default, extra
        FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position
    """
    _ADVANCED = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND auto_increment > 1"
    _USERS = "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()"

    def __init__(self, server: MariaDb, shape: object, look: str, filled: set[str], first: list[int]) -> None:
        self._server, self._shape, self._look, self._filled, self._first = server, shape, look, filled, first

    @classmethod
    async def like(cls, server: MariaDb, template: str) -> "MariaDbEmptier":
        """See `emptier_of`."""
        async with server.cursor() as cursor:
            shape = await _told(cursor, cls._COLUMNS, template)
            tables = dict.fromkeys(row[0] for row in shape)
            look = " UNION ALL ".join(f"(SELECT '{name}' FROM {name} LIMIT 1)" for name in tables)
            await cursor.execute(f"USE {template}")
            filled = {name for (name,) in await _told(cursor, look)}
            return cls(server, shape, look, filled, await _sums(cursor, filled))

    async def empty(self, name: str) -> bool:
        """See `Emptier`."""
        async with self._server.cursor() as cursor:
            for (user,) in await _told(cursor, self._USERS, name):
                with suppress(OperationalError):  # gone by itself meanwhile
                    await cursor.execute(f"KILL {user}")
            if await _told(cursor, self._COLUMNS, name) != self._shape:
                return False
            await cursor.execute(f"USE {name}")
            if await _sums(cursor, self._filled) != self._first:
                return False
            await cursor.execute("SET foreign_key_checks = 0")
            written = {*await _told(cursor, self._look), *await _told(cursor, self._ADVANCED, name)}
            for table in {table for (table,) in written} - self._filled:
                await cursor.execute(f"TRUNCATE {table}")
            return True


@asynccontextmanager
async def _on_postgres(server: Postgres, name: str) -> AsyncGenerator[Any]:
    connection: Any = await asyncpg.connect(
        host="127.0.0.1", port=server.port, user="tidegate", password=PASSWORD, database=name
    )
    try:
        yield connection
    finally:
        await connection.close()


async def _told(cursor: Any, sql: str, *values: str) -> list[tuple[Any, ...]]:
    await cursor.execute(sql, values or None)
    return [tuple(row) for row in await cursor.fetchall()]


async def _sums(cursor: Any, tables: set[str]) -> list[int]:
    """Of the rows of these tables of the database in use."""
    return [total for _, total in await _told(cursor, f"CHECKSUM TABLE {', '.join(sorted(tables))}")]
