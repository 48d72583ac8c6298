"""Looks snapshots up: in the memory of this process, on the Valkey server, in SQL, in this order.

Concurrent reads of one subject share one lookup, and lookups that start together are one request to the server and one
query. A subject that is refreshed during its lookup is looked up again for later readers; the readers of the first
lookup get its result, which was current when they asked, but it is not cached.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tidegate.core.batching import Batcher
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import DatabaseUnavailable, TidegateError
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.runtime.waiting import time_limit
from tidegate.storage.sql import Database
from tidegate.systems.snapshots import metrics, store
from tidegate.systems.snapshots.cache import (
    MARKED_FOR_S,
    UNKNOWN,
    CachedSnapshot,
    CacheKey,
    LocalCache,
    RefreshFailure,
    SnapshotCache,
)
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.store import KnownSubject
from tidegate.systems.snapshots.valkey_guard import ServerState, ValkeyGuard

log = get_logger(__name__)

_SERVER_WITHIN_S = 1.0
"""A call that takes longer counts as a failure of the server if a PING fails too."""
_PATIENCE_S = 0.05
"""How long a reader waits for the Valkey server before SQL is asked. Whether the server is unavailable is decided
separately and takes longer."""
_SQL_WITHIN = timedelta(seconds=5)
_UNKNOWN_FOR_MS = 1000.0
_MOST_AT_ONCE, _UNDER_WAY = 200, 4
_GATHER_RENEWALS_S = 0.1
"""Renewals that become due within this time are one request to the Valkey server. Entries have at least 20 % of their
lifetime left by then."""


class PendingLookup:
    """A lookup in progress."""

    __slots__ = ("answer", "is_outdated", "place", "server", "subject")

    def __init__(self, subject: SnapshotSubject) -> None:
        self.subject, self.place = subject, (subject.kind, subject.key)
        self.answer: asyncio.Future[CachedSnapshot] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(_retrieve)
        self.is_outdated = False
        self.server: asyncio.Task[Mapping[SnapshotSubject, CachedSnapshot]] | None = None
        """The request to the Valkey server, if it is still running."""


class SnapshotLookup:
    """Finds the state of subjects."""

    def __init__(
        self,
        local: LocalCache,
        cache: SnapshotCache,
        database: Database,
        *,
        server: ValkeyGuard,
        sql_breaker: CircuitBreaker,
    ) -> None:
        self.local = local
        local.on_due = self._renew
        self._cache, self._database, self._server, self._sql_breaker = cache, database, server, sql_breaker
        self._lookups: dict[CacheKey, PendingLookup] = {}
        self._at_the_server = Batcher(self._ask_server, most=_MOST_AT_ONCE, under_way=_UNDER_WAY)
        self._at_sql = Batcher(self._ask_sql, most=_MOST_AT_ONCE, under_way=_UNDER_WAY)
        self._background: set[asyncio.Task[Any]] = set()
        self._due: list[CacheKey] = []
        """Entries to be looked up again, when `_renewing` expires."""
        self._renewing: asyncio.TimerHandle | None = None
        self._found_local = metrics.SNAPSHOT_READS.labels("local")
        self._found_server = metrics.SNAPSHOT_READS.labels("server")
        self._found_sql = metrics.SNAPSHOT_READS.labels("sql")

    @property
    def server(self) -> ServerState:
        """State of the Valkey server. Without it no refresh can be queued."""
        return self._server.state

    def held(self, place: CacheKey) -> CachedSnapshot | None:
        """Return the snapshot in the memory of this process, if there is one."""
        kept = self.local.get(place)
        if kept is not None:
            self._found_local.inc()
        return kept

    async def find(self, subject: SnapshotSubject) -> CachedSnapshot:
        """Return the state of a subject; raises `Unavailable` if neither the Valkey server nor the database answers."""
        # Cancelling one reader must not cancel the lookup of the others.
        return await asyncio.shield(self._begin(subject).answer)

    def _begin(self, subject: SnapshotSubject) -> PendingLookup:
        """Return the lookup in progress, or start one."""
        lookup = self._lookups.get((subject.kind, subject.key))
        if lookup is None or lookup.is_outdated:
            lookup = PendingLookup(subject)
            # Replaces an outdated lookup. Its readers still get their answer, because they hold the future.
            self._lookups[lookup.place] = lookup
            self._at_the_server.add(lookup)
        return lookup

    def _renew(self, place: CacheKey) -> None:
        """Look a cached subject up again before it expires. If that fails, the entry stays until it expires."""
        # Not a `PendingLookup` yet: a reader that misses the entry meanwhile must not wait for the timer.
        self._due.append(place)
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().call_later(_GATHER_RENEWALS_S, self._begin_renewals)

    def _begin_renewals(self) -> None:
        due, self._due, self._renewing = self._due, [], None
        for place in due:
            if self.local.peek(place) is not None:
                self._begin(SnapshotSubject(*place))

    def discard(self, moved: Collection[str] | None) -> None:
        """Discard what is cached of refreshed subjects; None: any may have been refreshed."""
        if moved is None:
            self.local.clear()
            # A lookup in progress may have read the old state already. Its result must not enter the cache.
            for lookup in self._lookups.values():
                lookup.is_outdated = True
            return
        for subject_id in moved:
            kind, _, key = subject_id.partition("/")
            self.local.forget((kind, key))
            if (lookup := self._lookups.get((kind, key))) is not None:
                lookup.is_outdated = True

    async def close(self) -> None:
        """Wait for lookups and copies in progress."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._due, self._renewing = [], None
        # In the order of the steps: the first batcher adds to the second, and the second starts copies.
        await self._at_the_server.close()
        await self._at_sql.close()
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)

    async def _ask_server(self, lookups: list[PendingLookup]) -> None:
        """Ask the Valkey server, and SQL for the subjects it does not have or if it is slow."""
        # In a task of its own: it goes on when the readers stop waiting for it, and its result
        # may be needed if SQL fails.
        asking = asyncio.create_task(self._read_copies(lookups), name=f"lookup {len(lookups)} up on the server")
        found: Mapping[SnapshotSubject, CachedSnapshot] = {}
        try:
            async with time_limit(_PATIENCE_S):
                found = await asyncio.shield(asking)
        except TimeoutError:
            self._keep(asking)  # its outcome still tells whether the server is available
        for lookup in lookups:
            if (kept := found.get(lookup.subject)) is not None:
                self._answer(lookup, kept)
            else:
                # A slow server is kept as the second source for the case that SQL fails.
                lookup.server = None if asking.done() else asking
                self._at_sql.add(lookup)

    async def _read_copies(self, lookups: Sequence[PendingLookup]) -> Mapping[SnapshotSubject, CachedSnapshot]:
        subjects = [lookup.subject for lookup in lookups]
        try:
            found = await self._server.call(lambda: self._cache.get_many(subjects), within_s=_SERVER_WITHIN_S)
        except TidegateError:
            return {}
        except Exception:  # on a defect in reading copies, SQL still has the answer
            log.exception("snapshots.copies_unreadable", subjects=len(subjects))
            return {}
        self._found_server.inc(len(found))
        return found

    async def _ask_sql(self, lookups: list[PendingLookup]) -> None:
        """Read the rows of lookups, answer them, and copy the rows to Valkey if it is available."""
        began_ms = monotonic_ms()
        try:
            # The time limit is inside the breaker, so that a database that hangs counts as failed.
            with self._sql_breaker.attempt():
                async with time_limit(_SQL_WITHIN.total_seconds()):
                    rows = await self._database.read(store.read_many, [lookup.subject for lookup in lookups])
        except TimeoutError:
            within_s = _SQL_WITHIN.total_seconds()
            return await self._without_sql(
                lookups, DatabaseUnavailable(f"the database did not answer within {within_s:g} s")
            )
        except Exception as error:
            return await self._without_sql(lookups, error)
        self._found_sql.inc(len(lookups))
        for lookup in lookups:
            try:
                self._answer(lookup, _cached(rows[lookup.subject]))
            except Exception as error:  # one damaged row must not affect the others
                self._fail(lookup, error)
        # Copy only to a server that is known to work: these rows are a cache, and a copy must not delay its recovery.
        if self._server.state is ServerState.AVAILABLE:
            known = [known for known in rows.values() if known.row is not None and known.row.version]
            if known:
                self._keep(asyncio.create_task(self._copy(known, began_ms), name=f"copy {len(known)} rows"))
        return None

    async def _without_sql(self, lookups: Sequence[PendingLookup], error: Exception) -> None:
        """Without SQL, wait for a slow Valkey server."""
        for lookup in lookups:
            # The request to the server has its own time limit and returns nothing on failure, so this wait ends.
            kept = None if lookup.server is None else (await lookup.server).get(lookup.subject)
            if kept is not None:
                self._answer(lookup, kept)
            else:
                self._fail(lookup, error)

    def _answer(self, lookup: PendingLookup, kept: CachedSnapshot) -> None:
        held = self.local.peek(lookup.place)
        # `peek` instead of `get`: this is not a read, so it must not keep the entry or start another lookup.
        if held is not None and held.version > kept.version:
            kept = held  # a later lookup finished first
        elif not lookup.is_outdated:
            self.local.put(lookup.place, kept, keep_ms=_UNKNOWN_FOR_MS if kept is UNKNOWN else None)
        self._forget(lookup)
        if not lookup.answer.done():
            lookup.answer.set_result(kept)

    def _fail(self, lookup: PendingLookup, error: Exception) -> None:
        self._forget(lookup)
        if not lookup.answer.done():
            lookup.answer.set_exception(error)

    def _forget(self, lookup: PendingLookup) -> None:
        # A newer lookup may have replaced this one after it became outdated.
        if self._lookups.get(lookup.place) is lookup:
            del self._lookups[lookup.place]

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _copy(self, known: Sequence[KnownSubject], read_at_ms: float) -> None:
        """Copy rows to the server, unless this process was delayed: a newer copy may have expired since."""
        if monotonic_ms() - read_at_ms > MARKED_FOR_S / 2 * 1000:
            return
        with suppress(TidegateError, TimeoutError):  # the copy is optional
            async with asyncio.timeout(1):
                await self._cache.put_rows([(each.row, RefreshFailure.of(each.status)) for each in known if each.row])


def _cached(known: KnownSubject) -> CachedSnapshot:
    failed = RefreshFailure.of(known.status)
    if known.row is None:
        return UNKNOWN if failed is None else CachedSnapshot.unknown(failed)
    return CachedSnapshot.of_row(known.row, failed)


def _retrieve(answer: "asyncio.Future[CachedSnapshot]") -> None:
    """Mark the error as handled, since all readers may have been cancelled."""
    if not answer.cancelled():
        answer.exception()
