"""A DuckDB file: one schema for each source, one table for each kind. Needs the extra `duckdb`.

Rows are committed with everything that the next sync needs to know, since that is in the rows. There is no index for
the primary key: it would make replacing rows about ten times slower, and the two statements of `write` keep ids unique.
Times are `TIMESTAMP` in UTC.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from tidegate.storage.documents.export.columns import Type
from tidegate.storage.documents.store import ChangeDigest
from tidegate.storage.documents.sync.arrow import arrow_schema, arrow_table
from tidegate.storage.documents.sync.destination import (
    Declared,
    DestinationAddress,
    SyncFailed,
    added_columns,
    private_umask,
    quoted,
)
from tidegate.storage.documents.sync.table import COLLECTED_AT, FINGERPRINT, ID, Rows, SyncTable

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = pa.timestamp("us")
_TYPES: Declared = {
    Type.TEXT: "VARCHAR",
    Type.WHOLE: "BIGINT",
    Type.TRUTH: "BOOLEAN",
    Type.TIME: "TIMESTAMP",
    Type.TEXTS: "VARCHAR[]",
    Type.JSON: "VARCHAR",
}


class DuckdbFile:
    """A `Destination` in one DuckDB file."""

    def __init__(self, connection: Any, shown: str) -> None:
        self._connection, self._shown = connection, shown

    @classmethod
    async def open(cls, address: DestinationAddress, *, read_only: bool) -> "DuckdbFile":
        """Open the file; it is created where it does not exist. DuckDB admits one writing process."""

        def connect() -> Any:
            # A dry run must not create the file. An empty database in memory gives the same answers.
            if read_only and not address.path.exists():
                return duckdb.connect()
            with private_umask():
                return duckdb.connect(str(address.path), read_only=read_only)

        with _errors(address.shown):
            return cls(await asyncio.to_thread(connect), address.shown)

    async def open_table(self, table: SyncTable, *, full: bool) -> "DuckdbTable":
        """See `Destination.open_table`."""
        opened = DuckdbTable(self._connection, self._shown, table)
        await opened.do(lambda: opened.prepare(full=full))
        return opened

    async def peek(self, table: SyncTable) -> "DuckdbTable | None":
        """See `Destination.peek`."""
        opened = DuckdbTable(self._connection, self._shown, table)
        return opened if await opened.do(opened.present) else None

    async def close(self) -> None:
        """See `Destination.close`."""
        with _errors(self._shown):
            await asyncio.to_thread(self._connection.close)


class DuckdbTable:
    """A `Table` of a DuckDB file."""

    def __init__(self, connection: Any, shown: str, table: SyncTable) -> None:
        self._connection, self._shown, self._table = connection, shown, table
        # With the name of the file, which may be that of the schema.
        self._place = f"{quoted(_catalog(connection))}.{quoted(table.source)}"
        self._name = f"{self._place}.{quoted(table.kind)}"
        self._schema = arrow_schema(table, times=_TIMES)

    async def do(self, work: Callable[[], T]) -> T:
        """Run blocking work in a thread, to its end also when the caller is cancelled: the connection is one."""

        def guarded() -> T:
            with _errors(self._shown), private_umask():  # the write-ahead log is another file
                return work()

        running = asyncio.ensure_future(asyncio.to_thread(guarded))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def present(self) -> Mapping[str, str]:
        """The columns of the table with their types; none where it does not exist."""
        query = """
            SELECT column_name, data_type FROM duckdb_columns()
            WHERE database_name = current_database() AND schema_name = ? AND table_name = ?"""
        return dict(self._connection.execute(query, [self._table.source, self._table.kind]).fetchall())

    def prepare(self, *, full: bool) -> None:
        """Create or extend the table."""
        with self._transaction() as run:
            run(f"CREATE SCHEMA IF NOT EXISTS {self._place}")
            present = self.present()
            added = added_columns(self._shown, self._table, present, _TYPES, full=full)
            if added is None:
                run(f"DROP TABLE {self._name}")
                present, added = {}, self._table.columns
            if not present:
                columns = ", ".join(f"{quoted(column.name)} {_TYPES[column.type]}" for column in added)
                run(f"CREATE TABLE {self._name} ({columns})")
                return
            for column in added:
                run(f"ALTER TABLE {self._name} ADD COLUMN {quoted(column.name)} {_TYPES[column.type]}")
            # A fingerprint of 0 matches no document, so every row is compared and written again.
            if added or full:
                run(f"UPDATE {self._name} SET {FINGERPRINT} = 0")

    async def moments(self, after: datetime | None, until: datetime) -> Mapping[datetime, ChangeDigest]:
        """See `Table.moments`."""

        def read() -> Sequence[tuple[int, int, int]]:
            query = f"""
                SELECT epoch_us({COLLECTED_AT}), count(*), sum({FINGERPRINT})::BIGINT FROM {self._name}
                WHERE {COLLECTED_AT} > make_timestamp(?) AND {COLLECTED_AT} <= make_timestamp(?) GROUP BY 1"""
            return self._connection.execute(query, [-(2**60) if after is None else _us(after), _us(until)]).fetchall()

        found = (ChangeDigest(_moment(us), documents, total) for us, documents, total in await self.do(read))
        return {each.at: each for each in found}

    async def write(self, rows: Rows) -> int:
        """See `Table.write`: what is different is deleted and inserted again, in one transaction."""

        different = f"(present.{FINGERPRINT}, present.{COLLECTED_AT}) <> (given.{FINGERPRINT}, given.{COLLECTED_AT})"
        same_id = f"present.{ID} = given.{ID}"

        def work() -> int:
            self._connection.register("given", arrow_table(rows, self._schema))
            try:
                with self._transaction() as run:
                    run(f"DELETE FROM {self._name} AS present USING given WHERE {same_id} AND {different}")
                    run(
                        f"INSERT INTO {self._name} BY NAME SELECT * FROM given "
                        f"WHERE NOT EXISTS (FROM {self._name} AS present WHERE {same_id})"
                    )
                    return self._connection.fetchone()[0]
            finally:
                self._connection.unregister("given")

        return await self.do(work)

    async def finish(self, *, full: bool) -> int:
        """See `Table.finish`."""

        def work() -> int:
            with self._transaction() as run:
                run(f"DELETE FROM {self._name} WHERE {FINGERPRINT} = 0")
                return self._connection.fetchone()[0]

        return await self.do(work) if full else 0

    @contextmanager
    def _transaction(self) -> Generator[Callable[[str], Any]]:
        self._connection.execute("BEGIN")
        try:
            yield self._connection.execute
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):  # the error may have ended it
                self._connection.execute("ROLLBACK")
            raise


def _catalog(connection: Any) -> str:
    return connection.execute("SELECT current_database()").fetchone()[0]


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)


@contextmanager
def _errors(shown: str) -> Generator[None]:
    try:
        yield
    except duckdb.Error as error:
        text = str(error).partition("\n")[0]
        raise SyncFailed(shown, text, _remedy(text)) from None


def _remedy(text: str) -> str:
    if "lock" in text:
        return "Close the other process that has the file open, and repeat the sync"
    if "Permission denied" in text or "Read-only" in text:
        return "Name a file that this user may write with --to"
    if "No space left" in text:
        return "Make room on the disk and repeat the sync: it continues where it stopped"
    return "Repeat the sync when it is repaired"
