"""PostgreSQL and MySQL/MariaDB: a pool of connections; SQLAlchemy's bridge runs functions on async drivers."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tidegate.core.errors import CommitUnknown
from tidegate.storage.sql.faults import DatabaseConnectionLost, DatabaseErrorKind, classify
from tidegate.storage.sql.transaction import Attempt, Result, Transaction
from tidegate.storage.sql.urls import DatabaseAddress

_CONNECT_SECONDS = 10
_COMMIT_SECONDS = 30

# Bad values are errors, as on the other servers, and 0 is a number like any other.
_STRICT = (
    "STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,"
    "NO_AUTO_VALUE_ON_ZERO"
)
_MYSQL_SESSION = f"SET SESSION sql_mode = '{_STRICT}', SESSION time_zone = '+00:00'"


class PooledBackend:
    """A server reached over at most `connections` connections, made when they are first needed."""

    def __init__(self, address: DatabaseAddress, *, connections: int) -> None:
        self._address = address
        self._engine = _engine(address, connections)

    async def prepare(self) -> None:
        """Do nothing: each connection is prepared when it is opened."""

    async def attempt(self, attempt: Attempt[Result]) -> Result:
        """See `Backend.attempt`."""
        async with self._connection(attempt) as connection:
            async with _within(attempt.timeout.total_seconds()):
                result, tx = await connection.run_sync(self._run, attempt)
            if attempt.writes:
                # A commit that was sent cannot be taken back, so a cancellation waits for its outcome.
                await _to_the_end(self._commit(connection, attempt, tx))
            return result

    async def close(self) -> None:
        """See `Backend.close`."""
        await self._engine.dispose()

    def _run(self, connection: Connection, attempt: Attempt[Result]) -> tuple[Result, Transaction]:
        tx = attempt.begin(connection, self._address.dialect)
        return attempt.run(tx), tx

    async def _commit(self, connection: AsyncConnection, attempt: Attempt[Any], tx: Transaction) -> None:
        try:
            async with _within(_COMMIT_SECONDS):
                await connection.commit()
        except (SQLAlchemyError, DatabaseConnectionLost, OSError) as error:
            # The server may have committed before the connection broke.
            if isinstance(error, OSError) or classify(error).kind is DatabaseErrorKind.BROKEN:
                attempt.fate_unknown(tx)
                raise CommitUnknown(self._address.shown) from error
            raise
        attempt.committed(tx)

    @asynccontextmanager
    async def _connection(self, attempt: Attempt[Any]) -> AsyncGenerator[AsyncConnection]:
        """Take a connection from the pool for the block.

        Raises `DatabaseConnectionLost` if the server cannot be reached. A connection that the server refuses to serve
        is not used again.
        """
        try:
            connection = await self._engine.connect()
        # It says that this process uses all connections; the server may be well.
        except PoolTimeout:
            raise
        except Exception as error:  # drivers raise what they like here: their own errors, the socket's, a timeout
            raise DatabaseConnectionLost from error
        try:
            if self._address.dialect == "postgresql" and not attempt.writes:
                await connection.execution_options(postgresql_readonly=True)
            yield connection
        except SQLAlchemyError as error:
            if classify(error).kind is DatabaseErrorKind.REFUSED:
                # The server became a replica: only a new connection can find the one that took its place.
                await connection.invalidate()
            raise
        finally:
            # Also when cancelled: a connection that is not given back is missing in the pool.
            await _to_the_end(_release(connection))


def _engine(address: DatabaseAddress, connections: int) -> AsyncEngine:
    """Create the engine of a PostgreSQL, MySQL or MariaDB server."""
    timeout = "timeout" if address.dialect == "postgresql" else "connect_timeout"
    engine = create_async_engine(
        address.url,
        connect_args={timeout: _CONNECT_SECONDS},
        # After waiting for a lock, a statement must see what its former holder committed. The default of MySQL would
        # show an older snapshot.
        isolation_level="READ COMMITTED",
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,  # every attempt ends its own transaction; this saves a round trip
        hide_parameters=True,
    )
    if address.dialect == "mysql":
        # It logs the server's notes on a statement, such as each row that INSERT IGNORE skips.
        logging.getLogger("asyncmy").setLevel(logging.ERROR)
        event.listen(engine.sync_engine, "connect", _make_strict)
    return engine


def _make_strict(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(_MYSQL_SESSION)
    cursor.close()


async def _release(connection: AsyncConnection) -> None:
    """Return the connection to the pool; uncommitted changes are rolled back. An unresponsive one is discarded."""
    with suppress(SQLAlchemyError, DatabaseConnectionLost, OSError):
        async with _within(_CONNECT_SECONDS):
            await connection.close()


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    """Treat a connection as broken after this silence: abandon its statement, and close it."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        # Otherwise another timeout raised it, such as that of the caller.
        if limit.expired():
            raise DatabaseConnectionLost from error
        raise


async def _to_the_end(coroutine: Coroutine[Any, Any, None]) -> None:
    """Await `coroutine` to its end even if the caller is cancelled meanwhile; the cancellation comes after it."""
    task = asyncio.ensure_future(coroutine)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            # `wait` does not cancel the task when the caller is cancelled.
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # seen; the caller has left
    raise cancelled
