"""Transactions as a unit of work sees them, and the interface of the backends that run them.

There are two backends: `SqliteBackend` with threads, and `PooledBackend` for database servers.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple, overload

from sqlalchemy import Connection, CursorResult, Executable, Table, insert, select
from sqlalchemy.exc import StatementError
from sqlalchemy.sql.dml import Insert, UpdateBase
from sqlalchemy.sql.selectable import TypedReturnsRows

from tidegate.core.arguments import require_name
from tidegate.core.errors import ContractBroken, TidegateError
from tidegate.storage.sql.faults import DatabaseConnectionLost
from tidegate.storage.sql.urls import Dialect

Row = Mapping[str, Any]
Parameters = Row | Sequence[Row]
_Columns = TypeVarTuple("_Columns")


class Transaction:
    """One attempt at a unit of work: statements that are committed together or not at all.

    It is valid until the function that received it returns. The function may be called again after a conflict, with a
    new `Transaction`, so it must have no effects except through this object.

    Example:
        def publish(tx: Transaction, title: str) -> None:
            # Your own statements: tx.execute(insert(articles).values(title=title))
            outbox.add(tx, Event("article.published", key="articles", payload={"title": title}))

        await database.transaction(publish, "Tides")
    """

    def __init__(self, connection: Connection, dialect: Dialect, *, now: datetime, read_only: bool) -> None:
        self._connection: Connection | None = connection
        self._callbacks: list[Callable[[], object]] = []
        self._topics: list[str] = []
        self._read_only = read_only
        self.dialect: Dialect = dialect
        """For statements that differ between servers."""
        self.now = now
        """Time of this attempt, in UTC; the same for all rows that it writes."""

    @property
    def connection(self) -> Connection:
        """The SQLAlchemy connection, for features that this class does not offer."""
        if self._connection is None:
            raise ContractBroken("a transaction was used after its function had returned")
        return self._connection

    @overload
    def execute(
        self, statement: TypedReturnsRows[*_Columns], parameters: Parameters | None = None
    ) -> CursorResult[*_Columns]: ...
    @overload
    def execute(
        self, statement: Executable, parameters: Parameters | None = None
    ) -> CursorResult[*tuple[Any, ...]]: ...
    def execute(self, statement: Executable, parameters: Parameters | None = None) -> CursorResult[*tuple[Any, ...]]:
        """Run one statement, or, with a sequence of parameters, the same statement for each of them."""
        # Found here on every server, also where the connection itself would allow the write.
        if self._read_only and isinstance(statement, UpdateBase):
            raise ContractBroken("a read tried to write; use `transaction` instead of `read`")
        with _errors_translated():
            return self.connection.execute(statement, parameters)

    def execute_sql(self, sql: str, parameters: Sequence[Any] | Row | None = None) -> CursorResult[*tuple[Any, ...]]:
        """Run SQL of the dialect, with the placeholders of its driver, for the most frequent statements.

        A sequence of tuples runs the statement once for each.
        """
        with _errors_translated():
            return self.connection.exec_driver_sql(sql, parameters)  # pyright: ignore[reportArgumentType]

    def insert_many(self, table: Table, rows: Sequence[Row], *, skip_existing: bool = False) -> None:
        """Insert all `rows`, which have the same columns; `skip_existing` leaves out those that break a unique key.

        Of transactions that insert the same rows in the same order one waits for the other, on every server.
        """
        if rows:
            self.execute(self._insert_or_lock(table) if skip_existing else insert(table), rows)

    def _insert_or_lock(self, table: Table) -> Insert:
        """As `insert_if_absent`, where the row count does not matter.

        MySQL locks a row that is there already. INSERT IGNORE locks it for reading: two transactions that hold such a
        lock and want to write the row next block each other, which the server ends as a deadlock. An update that
        changes nothing locks it for writing.
        """
        if self.dialect != "mysql":
            return self.insert_if_absent(table)
        from sqlalchemy.dialects.mysql import insert as mysql_insert

        first = next(iter(table.primary_key.columns))
        return mysql_insert(table).on_duplicate_key_update({first.name: first})

    def insert_if_absent(self, table: Table) -> Insert:
        """An INSERT that does nothing for a row that breaks a unique key; its `rowcount` tells which it was."""
        match self.dialect:
            case "sqlite":
                from sqlalchemy.dialects.sqlite import insert as sqlite_insert

                return sqlite_insert(table).on_conflict_do_nothing()
            case "postgresql":
                from sqlalchemy.dialects.postgresql import insert as postgresql_insert

                return postgresql_insert(table).on_conflict_do_nothing()
            case "mysql":
                # Not ON DUPLICATE KEY UPDATE: its row count cannot tell an insert from a duplicate.
                return insert(table).prefix_with("IGNORE")

    def insert_or_lock(self, table: Table, row: Row, *, key: str | Sequence[str]) -> tuple[Any, bool]:
        """Insert `row` unless there is one with the same `key` (unique columns); lock the one that is there.

        Returns the row as it is now, which no other transaction changes or deletes until the commit, and whether it is
        new. Of transactions that come at once, the first one inserts and the others read what it wrote.
        """
        names = [key] if isinstance(key, str) else key
        present = select(table).where(*(table.c[name] == row[name] for name in names)).with_for_update()
        while True:
            # The insertion waits for a concurrent one of the same key, so the row that is read next is committed or
            # new.
            is_new = self.execute(self.insert_if_absent(table), [row]).rowcount == 1
            found = self.execute(present).one_or_none()
            if found is not None:
                return found, is_new
            # A transaction deleted it between our two statements: insert again.

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Undo only this block if it raises; the transaction continues if the error is caught outside."""
        with self.connection.begin_nested():
            yield

    def after_commit(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the event loop once the commit succeeded; never after a rollback.

        Callbacks run in the order given, before the caller of the transaction goes on. What one raises is logged.
        """
        self._callbacks.append(callback)

    def announce(self, topic: str) -> None:
        """Notify the subscribers of `topic` after the commit, once per transaction.

        They are also notified if the connection broke during the commit and its outcome is unknown. So a notification
        means that something may have changed.
        """
        require_name("topic", topic)
        # A list and not a set: subscribers are notified in the order of the announcements.
        if topic not in self._topics:
            self._topics.append(topic)

    @property
    def callbacks(self) -> Sequence[Callable[[], object]]:
        """The callbacks that were passed to `after_commit`."""
        return self._callbacks

    @property
    def topics(self) -> Sequence[str]:
        """The topics that were passed to `announce`."""
        return self._topics

    def end(self) -> None:
        """Called by the engine after the function returned; the transaction cannot be used any more."""
        self._connection = None


@contextmanager
def _errors_translated() -> Generator[None]:
    """Raise Tidegate's errors without SQLAlchemy's wrapper, and network errors as `DatabaseConnectionLost`.

    Errors of the driver are not changed.
    """
    try:
        yield
    except StatementError as error:
        if isinstance(error.orig, TidegateError):
            raise error.orig from None
        raise
    except (OSError, EOFError) as error:
        raise DatabaseConnectionLost from error


Result = TypeVar("Result")


@dataclass(frozen=True)
class Attempt(Generic[Result]):
    """A function to run in one transaction, and the future that receives its result."""

    work: Callable[[Transaction], Result]
    now: datetime
    writes: bool
    timeout: timedelta
    committed: Callable[[Transaction], None]
    """Called on the event loop as soon as the commit is known to have happened."""
    fate_unknown: Callable[[Transaction], None]
    """Called on the event loop when the connection broke during the commit."""

    def begin(self, connection: Connection, dialect: Dialect) -> Transaction:
        """A fresh transaction for this attempt."""
        return Transaction(connection, dialect, now=self.now, read_only=not self.writes)

    def run(self, tx: Transaction) -> Result:
        """Run the function; afterwards the transaction cannot be used any more."""
        try:
            return self.work(tx)
        finally:
            tx.end()


class Backend(Protocol):
    """Runs attempts. It raises errors of the driver unchanged; the engine classifies them with `faults`."""

    async def prepare(self) -> None:
        """Make the database ready for attempts, once, when it is opened."""
        ...

    async def attempt(self, attempt: Attempt[Result]) -> Result:
        """Run the function in one transaction, and commit it; a read is rolled back.

        If the caller is cancelled before the commit began, the transaction is rolled back. After that, the commit is
        finished and reported in any case. Raises `CommitUnknown` when the connection broke during the commit.
        """
        ...

    async def close(self) -> None:
        """Close all connections and threads. Called when no attempt is running any more."""
        ...
