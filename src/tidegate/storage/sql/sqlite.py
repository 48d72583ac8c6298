"""SQLite: all writing in one thread, reading in a few others.

A whole transaction costs one hop to the writer's thread and one back. SQLite has one writer at a time in any case, so a
second thread would only wait for the first inside SQLite, where waiting is polling.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from tidegate.core.clock import milliseconds
from tidegate.core.errors import CommitUnknown, ServerRefused
from tidegate.storage.sql.faults import DatabaseConnectionLost, DatabaseErrorKind, classify
from tidegate.storage.sql.transaction import Attempt, Result, Transaction
from tidegate.storage.sql.urls import DatabaseAddress


class SqliteBackend:
    """One file, one writer thread, `readers` reader threads; other processes may use the file too (WAL)."""

    def __init__(self, address: DatabaseAddress, *, readers: int, busy_timeout: timedelta) -> None:
        self._address = address
        # IMMEDIATE takes the write lock at once. A transaction that first reads and then writes would fail if another
        # process wrote in between.
        self._writing = _engine(address, begin="BEGIN IMMEDIATE", busy_timeout=busy_timeout, connections=1)
        self._reading = _engine(address, begin="BEGIN", busy_timeout=busy_timeout, connections=readers)
        # The second guard after `Transaction.execute`, which does not see textual SQL.
        event.listen(self._reading, "connect", _forbid_writing)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="tidegate-sqlite-writer")
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="tidegate-sqlite-reader")

    async def prepare(self) -> None:
        """Make the file if there is none, and set it to write-ahead logging, which it remembers."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._enable_wal)

    async def attempt(self, attempt: Attempt[Result]) -> Result:
        """See `Backend.attempt`."""
        loop = asyncio.get_running_loop()
        engine, threads = (self._writing, self._writer) if attempt.writes else (self._reading, self._readers)
        threaded = _ThreadedAttempt(engine, attempt, self._address.shown)
        try:
            # Cancelled while it waits for a thread: the executor never starts it.
            return await loop.run_in_executor(threads, threaded.run)
        except asyncio.CancelledError:
            # The thread cannot be interrupted. It reads this before the commit, and rolls back.
            threaded.withdrawn = True
            raise

    async def close(self) -> None:
        """See `Backend.close`."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        # After the threads have ended, which still use the connections.
        self._reading.dispose()
        # Last, so that its closing folds the log back into the file.
        self._writing.dispose()

    def _enable_wal(self) -> None:
        """Create the file with private permissions, and enable WAL mode. Raises `ServerRefused` if that fails."""
        path = Path(self._address.url.database or "")
        _make_private(path)
        if path.exists() and not os.access(path, os.W_OK):
            raise ServerRefused(
                self._address.shown, "the file may not be written", remedy="Make it writable for this user"
            )
        connection = self._writing.raw_connection()
        try:
            cursor = connection.cursor()
            # SQLite answers with the mode that is in force, and raises nothing if the file system does not allow it.
            cursor.execute("PRAGMA journal_mode=WAL")
            (mode,) = cursor.fetchone() or ("none",)
            cursor.close()
        finally:
            connection.close()
        if mode != "wal":
            raise ServerRefused(
                self._address.shown,
                f"its file system allows only the journal mode {mode!r}",
                remedy="Put the file on a local disk",
            )


def _make_private(path: Path) -> None:
    """Make the file, for its owner alone whatever the umask, unless there is one. Its `-wal` and `-shm` get its mode.

    An existing file is not opened here: to close it again would drop the locks of other connections of this process.
    """
    with suppress(OSError):  # there is one already; or it cannot be made, which SQLite reports
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


class _ThreadedAttempt(Generic[Result]):
    """One attempt on its way through a thread."""

    def __init__(self, engine: Engine, attempt: Attempt[Result], shown: str) -> None:
        self._engine, self._attempt, self._shown = engine, attempt, shown
        self._loop = asyncio.get_running_loop()
        self.withdrawn = False
        """Set by the event loop when no task waits for the result any more; read once, right before the commit."""

    def run(self) -> Result:
        attempt = self._attempt
        with self._connect() as connection:
            # Runs the BEGIN of this engine (`say_begin`).
            connection.begin()
            tx = attempt.begin(connection, "sqlite")
            result = attempt.run(tx)
            # A caller that is cancelled after this line has its changes committed.
            if attempt.writes and not self.withdrawn:
                self._commit(connection, tx)
            return result  # leaving without a commit rolls back

    def _commit(self, connection: Connection, tx: Transaction) -> None:
        try:
            connection.commit()
        except DBAPIError as error:
            if classify(error).kind is not DatabaseErrorKind.BROKEN:
                raise
            self._tell(self._attempt.fate_unknown, tx)
            raise CommitUnknown(self._shown) from error
        # Saves a hop to the event loop for transactions that announce nothing.
        if tx.callbacks or tx.topics:
            self._tell(self._attempt.committed, tx)

    def _connect(self) -> Connection:
        try:
            return self._engine.connect()
        except sqlite3.Error as error:
            raise DatabaseConnectionLost from error

    def _tell(self, listener: Callable[[Transaction], None], tx: Transaction) -> None:
        with suppress(RuntimeError):  # the loop is closed: no listener is left
            self._loop.call_soon_threadsafe(listener, tx)


def _engine(address: DatabaseAddress, *, begin: str, busy_timeout: timedelta, connections: int) -> Engine:
    """Create an engine for the file; its transactions start with the statement `begin`."""
    engine = create_engine(
        address.url,
        connect_args={"check_same_thread": False, "timeout": busy_timeout.total_seconds()},
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,  # every attempt ends its own transaction
        hide_parameters=True,
    )

    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # BEGIN is sent explicitly
        cursor = connection.cursor()
        # NORMAL does not sync each commit in WAL mode: a loss of power may undo the last ones, and a crash of the
        # process cannot.
        for pragma in ("foreign_keys=ON", "synchronous=NORMAL", f"busy_timeout={milliseconds(busy_timeout)}"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def say_begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", say_begin)
    return engine


def _forbid_writing(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only=ON")
    cursor.close()
