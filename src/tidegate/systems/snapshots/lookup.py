"""Where a snapshot is found: in this process, on the Valkey server, in SQL; in this order, and each asked once for all.

However many ask for one subject at one time, one look is under way, and looks that begin together are one question to
the server and one to SQL. A subject that changes while it is looked up is looked up anew for those who ask from then
on; what the first look finds is answered with, since it was true when it was asked for, but not held.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tidegate.core.batching import Batcher
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import DatabaseUnavailable, TidegateError
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.runtime.waiting import patience
from tidegate.storage.sql import Database
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.cache import MARKED_FOR_S, CacheKey, LocalCache, SnapshotCache
from tidegate.systems.snapshots.cached_snapshot import UNKNOWN, CachedSnapshot, RefreshFailure
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.store import KnownSubject
from tidegate.systems.snapshots.valkey_guard import ServerState, ValkeyGuard

log = get_logger(__name__)

_SERVER_WITHIN_S = 1.0
"""A server that takes longer has failed, if it does not answer a PING either."""
_PATIENCE_S = 0.05
"""How long a reader waits for the server before SQL is asked too. The server may take longer, and then is of no use to
this reader; whether it is away is another question, which takes longer to answer."""
_SQL_WITHIN = timedelta(seconds=5)
_UNKNOWN_FOR_MS = 1000.0
_MOST_AT_ONCE, _UNDER_WAY = 200, 4


class PendingLookup:
    """One look that is under way."""

    __slots__ = ("answer", "is_outdated", "place", "server", "subject")

    def __init__(self, subject: SnapshotSubject) -> None:
        self.subject, self.place = subject, (subject.kind, subject.key)
        self.answer: asyncio.Future[CachedSnapshot] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(_retrieve)
        self.is_outdated = False
        self.server: asyncio.Task[Mapping[SnapshotSubject, CachedSnapshot]] | None = None
        """The question to the server, where it takes its time."""


class SnapshotLookup:
    """Finds what is known of subjects."""

    def __init__(
        self,
        local: LocalCache,
        shelf: SnapshotCache,
        database: Database,
        *,
        server: ValkeyGuard,
        sql_breaker: CircuitBreaker,
    ) -> None:
        self.local = local
        local.on_due = self._renew
        self._shelf, self._database, self._server, self._sql_breaker = shelf, database, server, sql_breaker
        self._looks: dict[CacheKey, PendingLookup] = {}
        self._at_the_server = Batcher(self._ask_server, most=_MOST_AT_ONCE, under_way=_UNDER_WAY)
        self._at_sql = Batcher(self._ask_sql, most=_MOST_AT_ONCE, under_way=_UNDER_WAY)
        self._background: set[asyncio.Task[Any]] = set()
        self._found_local = metrics.SNAPSHOT_READS.labels("local")
        self._found_server = metrics.SNAPSHOT_READS.labels("server")
        self._found_sql = metrics.SNAPSHOT_READS.labels("sql")

    @property
    def server(self) -> ServerState:
        """Whether the Valkey server is there, as far as is known: without it nothing can be queued."""
        return self._server.standing

    def held(self, place: CacheKey) -> CachedSnapshot | None:
        """What this process has of it."""
        kept = self.local.get(place)
        if kept is not None:
            self._found_local.inc()
        return kept

    async def find(self, subject: SnapshotSubject) -> CachedSnapshot:
        """What is known; raises `Unavailable` where neither server answers."""
        # A reader that leaves does not take the others' answer along.
        return await asyncio.shield(self._begin(subject).answer)

    def _begin(self, subject: SnapshotSubject) -> PendingLookup:
        """The one look that is under way."""
        look = self._looks.get((subject.kind, subject.key))
        if look is None or look.is_outdated:
            look = PendingLookup(subject)
            self._looks[look.place] = look
            self._at_the_server.add(look)
        return look

    def _renew(self, place: CacheKey) -> None:
        """Refresh what is held before it expires. Where neither server answers, it is held until it expires."""
        self._begin(SnapshotSubject(*place))

    def hear(self, moved: Collection[str] | None) -> None:
        """These were refreshed (None: any may have been): what is held of them is outdated."""
        if moved is None:
            self.local.clear()
            for look in self._looks.values():
                look.is_outdated = True
            return
        for subject_id in moved:
            kind, _, key = subject_id.partition("/")
            self.local.forget((kind, key))
            if (look := self._looks.get((kind, key))) is not None:
                look.is_outdated = True

    async def close(self) -> None:
        """Wait for what is being looked up, and for what is still to be put on the server."""
        await self._at_the_server.close()
        await self._at_sql.close()
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)

    async def _ask_server(self, looks: list[PendingLookup]) -> None:
        """What the server has; the others go on to SQL. A reader does not wait long for a server that is slow."""
        asking = asyncio.create_task(self._on_the_server(looks), name=f"ask the server for {len(looks)}")
        found: Mapping[SnapshotSubject, CachedSnapshot] = {}
        try:
            async with patience(_PATIENCE_S):
                found = await asyncio.shield(asking)
        except TimeoutError:
            self._keep(asking)  # its end is still of use: it tells whether the server is there
        for look in looks:
            if (kept := found.get(look.subject)) is not None:
                self._answer(look, kept)
            else:
                look.server = None if asking.done() else asking
                self._at_sql.add(look)

    async def _on_the_server(self, looks: Sequence[PendingLookup]) -> Mapping[SnapshotSubject, CachedSnapshot]:
        subjects = [look.subject for look in looks]
        try:
            found = await self._server.call(lambda: self._shelf.get_many(subjects), within_s=_SERVER_WITHIN_S)
        except TidegateError:
            return {}
        except Exception:  # a defect costs no reader its answer: SQL has it too
            log.exception("snapshots.copies_unreadable", subjects=len(subjects))
            return {}
        self._found_server.inc(len(found))
        return found

    async def _ask_sql(self, looks: list[PendingLookup]) -> None:
        began_ms = monotonic_ms()
        try:
            with self._sql_breaker.attempt():
                async with patience(_SQL_WITHIN.total_seconds()):
                    rows = await self._database.read(store.look_many, [look.subject for look in looks])
        except TimeoutError:
            within_s = _SQL_WITHIN.total_seconds()
            return await self._do_without_sql(
                looks, DatabaseUnavailable(f"the database did not answer within {within_s:g} s")
            )
        except Exception as error:
            return await self._do_without_sql(looks, error)
        self._found_sql.inc(len(looks))
        for look in looks:
            try:
                self._answer(look, _kept(rows[look.subject]))
            except Exception as error:  # one bad row costs the others nothing
                self._fail(look, error)
        if self._server.standing is ServerState.THERE:
            known = [known for known in rows.values() if known.row is not None and known.row.version]
            if known:
                self._keep(asyncio.create_task(self._copy(known, began_ms), name=f"copy {len(known)} rows"))
        return None

    async def _do_without_sql(self, looks: Sequence[PendingLookup], error: Exception) -> None:
        """Where SQL cannot say, a slow server is better than none."""
        for look in looks:
            kept = None if look.server is None else (await look.server).get(look.subject)
            if kept is not None:
                self._answer(look, kept)
            else:
                self._fail(look, error)

    def _answer(self, look: PendingLookup, kept: CachedSnapshot) -> None:
        held = self.local.peek(look.place)
        if held is not None and held.version > kept.version:
            kept = held  # a later look was quicker
        elif not look.is_outdated:
            self.local.put(look.place, kept, keep_ms=_UNKNOWN_FOR_MS if kept is UNKNOWN else None)
        self._forget(look)
        if not look.answer.done():
            look.answer.set_result(kept)

    def _fail(self, look: PendingLookup, error: Exception) -> None:
        self._forget(look)
        if not look.answer.done():
            look.answer.set_exception(error)

    def _forget(self, look: PendingLookup) -> None:
        if self._looks.get(look.place) is look:
            del self._looks[look.place]

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _copy(self, known: Sequence[KnownSubject], read_at_ms: float) -> None:
        """Not where this process was held up meanwhile: something newer may have come and gone."""
        if monotonic_ms() - read_at_ms > MARKED_FOR_S / 2 * 1000:
            return
        with suppress(TidegateError, TimeoutError):  # it is only a copy
            async with asyncio.timeout(1):
                await self._shelf.put_rows([(each.row, RefreshFailure.of(each.trouble)) for each in known if each.row])


def _kept(known: KnownSubject) -> CachedSnapshot:
    failed = RefreshFailure.of(known.trouble)
    if known.row is None:
        return UNKNOWN if failed is None else CachedSnapshot.unknown(failed)
    return CachedSnapshot.of_row(known.row, failed)


def _retrieve(answer: "asyncio.Future[CachedSnapshot]") -> None:
    """All who asked may have left; then nothing else looks at its error."""
    if not answer.cancelled():
        answer.exception()
