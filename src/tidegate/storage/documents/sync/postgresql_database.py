"""A PostgreSQL database: one schema for each source, one table for each kind. Needs the extra `postgres`.

Rows are committed with everything that the next sync needs to know, since that is in the rows. Times are `timestamp` in
UTC. PostgreSQL has no character U+0000 in texts; it is replaced by U+FFFD.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg

from tidegate.storage.documents.export.columns import Column, Type, Value
from tidegate.storage.documents.store import ChangeDigest
from tidegate.storage.documents.sync.destination import Declared, DestinationAddress, SyncFailed, added_columns, quoted
from tidegate.storage.documents.sync.table import COLLECTED_AT, FINGERPRINT, ID, Rows, SyncTable

_TYPES: Declared = {
    Type.TEXT: "text",
    Type.WHOLE: "bigint",
    Type.TRUTH: "boolean",
    Type.TIME: "timestamp without time zone",
    Type.TEXTS: "text[]",
    Type.JSON: "text",
}
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_CONNECT_WITHIN_S = 15


class PostgresqlDatabase:
    """A `Destination` in one PostgreSQL database."""

    def __init__(self, connection: Any, shown: str) -> None:
        self._connection, self._shown = connection, shown

    @classmethod
    async def open(cls, address: DestinationAddress, source: str) -> "PostgresqlDatabase":
        """Connect, and lock the source: a session lock, which ends with the connection."""
        async with _errors(address.shown):
            connection = await asyncpg.connect(address.place, timeout=_CONNECT_WITHIN_S)
            opened = cls(connection, address.shown)
            name = f"tidegate sync {source}"
            if await connection.fetchval("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name):
                return opened
        await opened.close()
        raise SyncFailed(address.shown, f"another sync of {source} is writing to it", "Repeat the sync when it ended")

    async def open_table(self, table: SyncTable, *, full: bool) -> "PostgresqlTable":
        """See `Destination.open_table`."""
        opened = PostgresqlTable(self._connection, self._shown, table)
        async with _errors(self._shown):
            await opened.prepare(full=full)
        return opened

    async def peek(self, table: SyncTable) -> "PostgresqlTable | None":
        """See `Destination.peek`."""
        opened = PostgresqlTable(self._connection, self._shown, table)
        async with _errors(self._shown):
            return opened if await opened.present() else None

    async def close(self) -> None:
        """See `Destination.close`."""
        async with _errors(self._shown):
            await self._connection.close()


class PostgresqlTable:
    """A `Table` of a PostgreSQL database."""

    def __init__(self, connection: Any, shown: str, table: SyncTable) -> None:
        self._connection, self._shown, self._table = connection, shown, table
        self._name = f"{quoted(table.source)}.{quoted(table.kind)}"
        names = [quoted(name) for name in table.names]
        replaced = ", ".join(f"{name} = excluded.{name}" for name in names if name != quoted(ID))
        self._upsert = f"""
            INSERT INTO {self._name} AS present ({", ".join(names)}) SELECT {", ".join(names)} FROM given
            ON CONFLICT ({ID}) DO UPDATE SET {replaced}
            WHERE (present.{FINGERPRINT}, present.{COLLECTED_AT})
                <> (excluded.{FINGERPRINT}, excluded.{COLLECTED_AT})"""

    async def present(self) -> Mapping[str, str]:
        """The columns of the table with their types; none where it does not exist."""
        query = """
            SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
            JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname = $1 AND relname = $2 AND attnum > 0 AND NOT attisdropped"""
        return dict(await self._connection.fetch(query, self._table.source, self._table.kind))

    async def prepare(self, *, full: bool) -> None:
        """Create or extend the table."""
        run = self._connection.execute
        async with self._connection.transaction():
            present = await self.present()
            added = added_columns(self._shown, self._table, present, _TYPES, full=full)
            if added is None:
                await run(f"DROP TABLE {self._name}")
                present, added = {}, self._table.columns
            if not present:
                await self._create(added)
                return
            for column in added:
                await run(f"ALTER TABLE {self._name} ADD COLUMN {_declared(column)}")
            # A fingerprint of 0 matches no document, so every row is compared and written again.
            if added or full:
                await run(f"UPDATE {self._name} SET {FINGERPRINT} = 0")

    async def _create(self, columns: Sequence[Column]) -> None:
        schema, run = quoted(self._table.source), self._connection.execute
        # CREATE SCHEMA IF NOT EXISTS needs the right to create one, also where it exists.
        if not await self._connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema):
            await run(f"CREATE SCHEMA {schema}")
        await run(f"CREATE TABLE {self._name} ({', '.join(map(_declared, columns))}, PRIMARY KEY ({ID}))")
        await run(f"CREATE INDEX ON {self._name} ({COLLECTED_AT}, {FINGERPRINT})")

    async def moments(self, after: datetime | None, until: datetime) -> Mapping[datetime, ChangeDigest]:
        """See `Table.moments`."""
        query = f"""
            SELECT {COLLECTED_AT}, count(*), sum({FINGERPRINT})::bigint FROM {self._name}
            WHERE {COLLECTED_AT} > $1 AND {COLLECTED_AT} <= $2 GROUP BY 1"""
        async with _errors(self._shown):
            found = await self._connection.fetch(query, _without_zone(after or _FIRST), _without_zone(until))
        moments = (ChangeDigest(at.replace(tzinfo=UTC), documents, total) for at, documents, total in found)
        return {each.at: each for each in moments}

    async def write(self, rows: Rows) -> int:
        """See `Table.write`: rows are copied to a temporary table, and from there in one statement."""
        values = [_stored(column, found) for column, found in zip(self._table.columns, rows.values, strict=True)]
        async with _errors(self._shown), self._connection.transaction():
            await self._connection.execute(f"CREATE TEMPORARY TABLE given (LIKE {self._name}) ON COMMIT DROP")
            await self._connection.copy_records_to_table(
                "given", records=zip(*values, strict=True), columns=self._table.names
            )
            return _count(await self._connection.execute(self._upsert))

    async def finish(self, *, full: bool) -> int:
        """See `Table.finish`."""
        if not full:
            return 0
        async with _errors(self._shown):
            return _count(await self._connection.execute(f"DELETE FROM {self._name} WHERE {FINGERPRINT} = 0"))


def _declared(column: Column) -> str:
    return f"{quoted(column.name)} {_TYPES[column.type]}"


def _stored(column: Column, values: Sequence[Value]) -> Sequence[Any]:
    match column.type:
        case Type.TIME:
            return [None if each is None else _without_zone(each) for each in values]  # pyright: ignore[reportArgumentType]
        case Type.TEXT | Type.JSON:
            return [each.replace("\0", "\ufffd") if isinstance(each, str) and "\0" in each else each for each in values]
        case Type.TEXTS:
            return [
                [one.replace("\0", "\ufffd") for one in each] if isinstance(each, list) else None for each in values
            ]
        case _:
            return values


def _without_zone(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)


def _count(status: str) -> int:
    """The number of rows in a status like `INSERT 0 17`."""
    return int(status.rpartition(" ")[2])


@asynccontextmanager
async def _errors(shown: str) -> AsyncGenerator[None]:
    """Errors of the server and the network as `SyncFailed`, without the given address, which may have a password."""
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        remedy = "Grant CREATE on the database, or on the schema of the source, to the user"
        raise SyncFailed(shown, str(error), remedy) from None
    except asyncpg.DiskFullError as error:
        remedy = "Make room on the server and repeat the sync: it continues where it stopped"
        raise SyncFailed(shown, str(error), remedy) from None
    except (
        asyncpg.InvalidPasswordError,
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
    ) as error:
        raise SyncFailed(shown, str(error), "Correct the address in --to") from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise SyncFailed(shown, str(error) or type(error).__name__) from None
