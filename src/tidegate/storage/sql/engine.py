"""The database: transactions as functions, on the server that the URL names.

    async with await Database.open("sqlite:///tidegate.db") as database:
        await database.transaction(rename, "old", "new")       # rename(tx, "old", "new"), committed

A transaction is a plain function because then it can be run again: a deadlock undoes everything it did, so everything
has to be repeated, and only a function can be called again. See docs/decisions/0001.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVarTuple

from sqlalchemy import text

from tidegate.core.arguments import require_name, require_positive
from tidegate.core.backoff import Backoff
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import CommitUnknown, ContractBroken, DatabaseRefused, DatabaseUnavailable, ServerRefused
from tidegate.core.telemetry import get_logger
from tidegate.core.telemetry.disks import Disk, disk_of
from tidegate.storage.sql.faults import UNCLEAR, DatabaseErrorKind, Fault, classify
from tidegate.storage.sql.sqlite import SqliteBackend
from tidegate.storage.sql.transaction import Attempt, Backend, Result, Transaction
from tidegate.storage.sql.urls import DatabaseAddress, Dialect, parse_address

Version = tuple[int, ...]

_OLDEST: dict[str, Version] = {
    "sqlite": (3, 35),
    "postgresql": (13,),
    "mysql": (8, 0, 16),
    "mariadb": (10, 6),
}

_CAPABILITIES = {
    "sqlite": frozenset({"returning", "transactional ddl", "one writer"}),
    "postgresql": frozenset({"returning", "transactional ddl", "skip locked", "advisory locks"}),
    "mysql": frozenset({"json_table", "skip locked", "named locks"}),
    "mariadb": frozenset({"returning", "json_table", "skip locked", "named locks"}),
}

_QUESTIONS = {
    "sqlite": "SELECT sqlite_version(), 'off'",
    "postgresql": "SELECT current_setting('server_version'), current_setting('transaction_read_only')",
    "mysql": "SELECT VERSION(), @@global.read_only",
}


@dataclass(frozen=True)
class Server:
    """A database server: its name (`mariadb` is separate from `mysql`), version and capabilities."""

    product: str
    version: str
    capabilities: frozenset[str]
    read_only: bool

    def require_usable(self, shown: str) -> None:
        """Raise `ServerRefused` if the server is older than the tested versions, or refuses writes."""
        oldest = _OLDEST[self.product]
        if _numbers(self.version) < oldest:
            needed = ".".join(map(str, oldest))
            raise ServerRefused(
                shown,
                f"it is {self.product} {self.version}, and {needed} is the oldest that works",
                remedy="Upgrade the server",
            )
        if self.read_only:
            raise ServerRefused(shown, "it is read-only", remedy="Point the URL at the primary server")


def ask_server(tx: Transaction) -> Server:
    """Query name, version and capabilities of the connected server."""
    version, read_only = _answer(tx)
    product = "mariadb" if "mariadb" in version.lower() else str(tx.dialect)
    return Server(product, version.split("-")[0].split(" ")[0], _CAPABILITIES[product], read_only=read_only)


def _answer(tx: Transaction) -> tuple[str, bool]:
    row: Any = tx.execute(text(_QUESTIONS[tx.dialect])).one()
    return str(row[0]), str(row[1]).lower() not in ("0", "off")


def _numbers(version: str) -> Version:
    digits = ("".join(c for c in part if c.isdigit()) for part in version.split("."))
    return tuple(int(part) for part in digits if part)


Args = TypeVarTuple("Args")
log = get_logger(__name__)

Listener = Callable[[], object]

_LEAST_TRIES = 10
_CONFLICTS_WITHIN = timedelta(seconds=30)
"""How long a transaction is run again because others are in the way: on a busy server ten tries are over in no time."""
_PAUSE = Backoff(first=timedelta(milliseconds=20), most=timedelta(seconds=1))
_TRANSACTION_TIMEOUT = timedelta(seconds=60)


class Database:
    """One database, used from one event loop. Open it with `Database.open`.

    Example:
        def count_runs(tx: Transaction) -> int:
            return tx.execute(text("SELECT count(*) FROM collection_runs")).scalar_one()

        async with open_database(settings) as database:
            runs = await database.read(count_runs)
    """

    def __init__(
        self,
        address: DatabaseAddress,
        backend: Backend,
        clock: Clock,
        *,
        conflicts_within: timedelta = _CONFLICTS_WITHIN,
    ) -> None:
        self._address, self._backend, self._clock = address, backend, clock
        # For SQLite, it is the `Disk` that all writers of the folder share.
        self._disk = _disk_under(address)
        self._conflicts_within_s = conflicts_within.total_seconds()
        self._listeners: dict[str, list[Listener]] = {}
        self._topic_listeners: list[tuple[str, Callable[[str], object]]] = []
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        connections: int = 10,
        readers: int = 4,
        busy_timeout: timedelta = timedelta(seconds=30),
        conflicts_within: timedelta = _CONFLICTS_WITHIN,
    ) -> Self:
        """Connect to the database at `url`, and check that it can be used.

        `connections` bounds the pool of a server, `readers` the reading threads of SQLite; `busy_timeout` is how long
        SQLite waits for a writer of another process. A transaction that others are in the way of is run again for as
        long as `conflicts_within`, and ten times at least. Raises `ServerRefused` when an operator has to change
        something (password, version, a read-only replica), `DatabaseUnavailable` when trying again later may do.
        """
        require_positive("connections", connections)
        require_positive("readers", readers)
        require_positive("busy_timeout", busy_timeout.total_seconds())
        address = parse_address(url)
        if address.dialect == "sqlite":
            backend: Backend = SqliteBackend(address, readers=readers, busy_timeout=busy_timeout)
        else:
            # What SQLAlchemy needs for servers takes half a second to import.
            from tidegate.storage.sql.pooled import PooledBackend

            backend = PooledBackend(address, connections=connections)
        database = cls(address, backend, clock or SystemClock(), conflicts_within=conflicts_within)
        try:
            await database._patiently(backend.prepare)
            server = await database.describe()
            server.require_usable(address.shown)
        # Also when cancelled: the threads or connections of the backend would stay.
        except BaseException:
            await database.close()
            raise
        log.info("database.connected", database=address.shown, product=server.product, version=server.version)
        return database

    @property
    def dialect(self) -> Dialect:
        """`sqlite`, `postgresql` or `mysql` (which MariaDB speaks too)."""
        return self._address.dialect

    @property
    def name(self) -> str:
        """The address without password and options, for logs and messages."""
        return self._address.shown

    @property
    def clock(self) -> Clock:
        """The clock that sets the time of transactions."""
        return self._clock

    async def transaction(
        self,
        work: Callable[[Transaction, *Args], Result],
        *args: *Args,
        timeout: timedelta = _TRANSACTION_TIMEOUT,
    ) -> Result:
        """Run `work(tx, *args)` and commit; an error rolls everything back and is raised here.

        `work` is run again, from its beginning, when other transactions were in the way or the connection broke
        before the commit. Cancelling the caller before the commit rolls back; later, the commit stands. A server that
        is silent for `timeout` is taken for dead (SQLite has no such limit). Raises `DatabaseUnavailable`, or its
        `CommitUnknown` when the connection broke during the commit, and `NoSpaceLeft` where the disk is full.
        """
        return await self._run(partial(_call, work, args), writes=True, timeout=timeout)

    async def read(
        self,
        work: Callable[[Transaction, *Args], Result],
        *args: *Args,
        timeout: timedelta = _TRANSACTION_TIMEOUT,
    ) -> Result:
        """Run `work(tx, *args)`, which only reads; on SQLite it waits for no writer. Nothing it does is kept."""
        return await self._run(partial(_call, work, args), writes=False, timeout=timeout)

    def subscribe(self, topic: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the event loop after each transaction here that `announce`d `topic`.

        Returns the function that ends it. Transactions of other processes are not heard.
        """
        listeners = self._listeners.setdefault(require_name("topic", topic), [])
        listeners.append(listener)
        return partial(listeners.remove, listener)

    def subscribe_prefix(self, prefix: str, listener: Callable[[str], object]) -> Callable[[], None]:
        """Like `subscribe`, for all topics that begin with `prefix`; `listener` is given the topic."""
        entry = (require_name("prefix", prefix), listener)
        self._topic_listeners.append(entry)
        return partial(self._topic_listeners.remove, entry)

    async def describe(self) -> Server:
        """Return name, version and capabilities of the server."""
        return await self.transaction(ask_server)

    async def close(self) -> None:
        """Refuse new work, let running transactions finish, and close all connections."""
        # Before the wait: no new work may begin while the rest finishes.
        self._closed = True
        await self._idle.wait()
        await self._backend.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, work: Callable[[Transaction], Result], *, writes: bool, timeout: timedelta) -> Result:
        require_positive("timeout", timeout.total_seconds())
        if self._closed:
            raise ContractBroken(f"{self.name} was closed")
        self._running += 1
        self._idle.clear()
        try:
            return await self._patiently(
                lambda: self._backend.attempt(
                    Attempt(work, self._clock.now(), writes, timeout, self._committed, self._fate_unknown)
                )
            )
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _patiently(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """Run one step, and repeat it if necessary; raise the error that classifies its failure."""
        breaks, until = 0, asyncio.get_running_loop().time() + self._conflicts_within_s
        for tries in count(1):
            try:
                result = await step()
                if self._disk.is_full:
                    self._disk.accepted()
                return result
            except Exception as error:
                fault = classify(error)
                # Before the kind of the error is judged: SQLite reports a full disk in unclear ways too.
                if self._is_about_space(fault, error):
                    raise self._disk.refused() from error
                breaks += fault.kind is DatabaseErrorKind.BROKEN
                # Both bounds must be reached: a busy server uses up the tries in no time, and a slow one the time.
                is_late = tries >= _LEAST_TRIES and asyncio.get_running_loop().time() >= until
                # The first break may be the end of a connection that lay idle too long; a second is the server's.
                if fault.kind in (DatabaseErrorKind.OTHER, DatabaseErrorKind.REFUSED) or breaks > 1 or is_late:
                    self._give_up(fault, error, tries)
                log.debug("database.transaction_retried", database=self.name, reason=fault.what, tries=tries)
                # A broken connection is replaced at once. Only conflicts need time to pass.
                if fault.kind is DatabaseErrorKind.CONFLICT:
                    await asyncio.sleep(_PAUSE.delay(tries).total_seconds())
        raise AssertionError("it is tried until it returns or raises")

    def _is_about_space(self, fault: Fault, error: Exception) -> bool:
        """Whether the disk is full. A commit with an unknown outcome is still raised as such, and also reported."""
        if isinstance(error, CommitUnknown):
            # The commit may have succeeded, so the caller has to learn that its outcome is unknown.
            if self._disk.is_short:
                self._disk.refused()
            return False
        return fault.kind is DatabaseErrorKind.FULL or (fault in UNCLEAR and self._disk.is_short)

    def _give_up(self, fault: Fault, error: Exception, tries: int) -> NoReturn:
        match fault.kind:
            case DatabaseErrorKind.OTHER:
                raise error
            case DatabaseErrorKind.REFUSED:
                raise DatabaseRefused(self.name, fault.what, remedy=fault.remedy) from error
            case DatabaseErrorKind.CONFLICT:
                raise DatabaseUnavailable(
                    f"{self.name}: {fault.what}, {tries} times in a row", server=self.name
                ) from error
            case DatabaseErrorKind.BROKEN | DatabaseErrorKind.FULL:
                raise DatabaseUnavailable(f"{self.name}: {fault.what}", server=self.name) from error

    def _committed(self, tx: Transaction) -> None:
        for callback in tx.callbacks:
            _call_safely(callback)
        self._notify(tx)

    def _fate_unknown(self, tx: Transaction) -> None:
        self._notify(tx)

    def _notify(self, tx: Transaction) -> None:
        for topic in tx.topics:
            for listener in list(self._listeners.get(topic, ())):
                _call_safely(listener)
            for prefix, listener in list(self._topic_listeners):
                if topic.startswith(prefix):
                    _call_safely(partial(listener, topic))


def _disk_under(address: DatabaseAddress) -> Disk:
    if address.dialect != "sqlite":
        return Disk(address.shown)
    return disk_of(Path(address.url.database or "").absolute().parent)


def _call(work: Callable[[Transaction, *Args], Result], args: tuple[*Args], tx: Transaction) -> Result:
    return work(tx, *args)


def _call_safely(callback: Listener) -> None:
    """Log errors of a callback: the commit succeeded, so its caller must not see a failure."""
    try:
        callback()
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a callback after a commit failed", "exception": error}
        )
