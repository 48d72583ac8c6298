"""Where a snapshot is found: in this process, on the Valkey server, in SQL; in this order, and each asked once for all.

However many ask for one subject at one time, one look is under way. A subject that changes while it is looked up is
looked up anew for those who ask from then on; what the first look finds is answered with, since it was true when it was
asked for, but not held.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from tidegate.database import Database
from tidegate.flow.breaker import Breaker, BreakerState
from tidegate.kernel.clock import monotonic_ms
from tidegate.kernel.errors import DatabaseUnavailable, TidegateError
from tidegate.runtime.waiting import patience
from tidegate.snapshots import store
from tidegate.snapshots.kept import UNKNOWN, Failed, Kept
from tidegate.snapshots.local import LocalCache, Place
from tidegate.snapshots.shelf import MARKED_FOR_S, Shelf
from tidegate.snapshots.store import Snapshot
from tidegate.snapshots.subject import Subject
from tidegate.telemetry import metrics

_SERVER_WITHIN_S = 1.0
"""A server that takes longer has failed. If that goes on, the breaker opens, and SQL alone is asked."""
_PATIENCE_S = 0.05
"""How long a reader waits for the server before SQL is asked too. The server may take longer, and then is of no use to
this reader; whether it is away is another question, which takes longer to answer."""
_AWAY_AFTER = 3
"""So many looks without an answer in a row mean that it is away; one can be a moment in which the machine was busy. Who
is refused, or whose connection breaks, knows at once."""
_SQL_WITHIN = timedelta(seconds=5)
_UNKNOWN_FOR_MS = 1000.0


class Look(msgspec.Struct):
    """One look that is under way."""

    task: "asyncio.Task[Kept]"
    is_outdated: bool = False


class Lookup:
    """Finds what is known of subjects."""

    def __init__(
        self, local: LocalCache, shelf: Shelf, database: Database, *, server_breaker: Breaker, sql_breaker: Breaker
    ) -> None:
        self.local = local
        local.on_due = self._renew
        self._shelf, self._database = shelf, database
        self._server_breaker, self._sql_breaker = server_breaker, sql_breaker
        self._looks: dict[Place, Look] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._in_vain = 0
        self._found_local = metrics.SNAPSHOT_READS.labels("local")
        self._found_server = metrics.SNAPSHOT_READS.labels("server")
        self._found_sql = metrics.SNAPSHOT_READS.labels("sql")

    @property
    def server_is_there(self) -> bool:
        """Whether the Valkey server answers, as far as is known: without it nothing can be queued."""
        return self._in_vain < _AWAY_AFTER and self._server_breaker.state is BreakerState.CLOSED

    def held(self, place: Place) -> Kept | None:
        """What this process has of it."""
        kept = self.local.get(place)
        if kept is not None:
            self._found_local.inc()
        return kept

    async def find(self, subject: Subject) -> Kept:
        """What is known; raises `Unavailable` where nobody can say."""
        # Who leaves does not take the others' answer along.
        return await asyncio.shield(self._begin(subject).task)

    def _begin(self, subject: Subject) -> Look:
        """The one look that is under way."""
        place = (subject.kind, subject.key)
        look = self._looks.get(place)
        if look is None or look.is_outdated:
            task = asyncio.create_task(self._look(place, subject), name=f"look for {subject.id}")
            look = self._looks[place] = Look(task)
            self._keep(task)
            task.add_done_callback(_retrieve)
        return look

    def _renew(self, place: Place) -> None:
        """Look again at what is held, before its time is over; where nobody can say, it is held until then."""
        self._begin(Subject(*place))

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
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)

    async def _look(self, place: Place, subject: Subject) -> Kept:
        look = self._looks[place]
        try:
            kept = await self._known(subject)
            held = self.local.peek(place)
            if held is not None and held.version > kept.version:
                return held  # a later look was quicker
            if not look.is_outdated:
                self.local.put(place, kept, keep_ms=_UNKNOWN_FOR_MS if kept is UNKNOWN else None)
            return kept
        finally:
            if self._looks.get(place) is look:
                del self._looks[place]

    async def _known(self, subject: Subject) -> Kept:
        """What the server has, else SQL; a reader does not wait long for a server that is slow, or away."""
        asking = asyncio.create_task(self._on_the_server(subject), name=f"ask the server for {subject.id}")
        answered, _ = await asyncio.wait([asking], timeout=_PATIENCE_S)
        if answered:
            kept = asking.result()
            return await self._in_sql(subject) if kept is None else kept
        self._keep(asking)  # its end is still of use: it tells whether the server is there
        try:
            return await self._in_sql(subject)
        except TidegateError:
            if (kept := await asking) is None:
                raise
            return kept

    async def _on_the_server(self, subject: Subject) -> Kept | None:
        try:
            with self._server_breaker.attempt():
                async with patience(_SERVER_WITHIN_S):
                    kept = await self._shelf.get(subject)
        except TimeoutError:
            self._in_vain += 1
            return None
        except TidegateError:
            self._in_vain = _AWAY_AFTER
            return None
        self._in_vain = 0
        if kept is not None:
            self._found_server.inc()
        return kept

    async def _in_sql(self, subject: Subject) -> Kept:
        began_ms = monotonic_ms()
        try:
            with self._sql_breaker.attempt():
                async with patience(_SQL_WITHIN.total_seconds()):
                    row, trouble = await self._database.read(store.look, subject)
        except TimeoutError as error:
            raise DatabaseUnavailable(
                f"the database did not answer within {_SQL_WITHIN.total_seconds():g} s"
            ) from error
        self._found_sql.inc()
        failed = Failed.of(trouble)
        if row is None:
            return UNKNOWN if failed is None else Kept.unknown(failed)
        if self.server_is_there and row.version:
            task = asyncio.create_task(self._put(row, failed, began_ms), name=f"keep {subject.id}")
            self._keep(task)
        return Kept.of_row(row, failed)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _put(self, row: Snapshot, failed: Failed | None, read_at_ms: float) -> None:
        """Not where this process was held up meanwhile: something newer may have come and gone."""
        if monotonic_ms() - read_at_ms > MARKED_FOR_S / 2 * 1000:
            return
        with suppress(TidegateError, TimeoutError):  # it is only a copy
            async with asyncio.timeout(1):
                await self._shelf.put_row(row, failed)


def _retrieve(task: "asyncio.Task[Kept]") -> None:
    """All who asked may have left; then nobody else looks at its error."""
    if not task.cancelled():
        task.exception()
