"""Commits the results of refreshes in batches, and acknowledges their events afterwards. The steps, in this order:

    still assigned -> database commit -> copy to the Valkey server -> publish dead letters -> acknowledge
                   -> release locks -> wake readers

If the process dies between two steps, the event is delivered again; writing its result again only updates the time of
the check. While the database is unavailable or too slow, nothing is acknowledged, no events are read, nothing becomes a
dead letter, and the results in progress are written when it is available again.

If the lease of the process may have expired, because it was frozen or disconnected, it first asks which events are
still assigned to it, and drops the results of the others. It may freeze again after that: then the rules of `versions`
keep the newer result.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tidegate.core.clock import Clock, to_ms
from tidegate.core.errors import CircuitOpen, DatabaseUnavailable, ServerRefused, TidegateError, Unavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.primitives.coalescer import Coalescer
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import occurs, time_limit
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots import events, metrics, store
from tidegate.systems.snapshots.cache import MARKED_FOR_S, RefreshFailure, RefreshFeed, SnapshotCache, WrittenResult
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason, RefreshEvent
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.settings import WorkerSettings
from tidegate.systems.snapshots.store import RETRYING, FailedAttempt, Refreshed, WriteEffect
from tidegate.systems.snapshots.transports.protocol import Delivery, RefreshTopic, Transport, TransportConsumer

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

log = get_logger(__name__)

T = TypeVar("T")

_LOST = "its worker lost its lease"


class RetryNote(msgspec.Struct, frozen=True):
    """The refresh of a subject is being retried."""

    subject: SnapshotSubject
    version: int
    """Version of the failed request."""
    message: str
    tries: int


class FinishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A processed event: with a result, as a dead letter, or skipped as obsolete."""

    delivery: Delivery
    received_at: float
    """On the monotonic clock, in seconds."""
    event: RefreshEvent | None = None
    """None if it could not be read, or was obsolete."""
    refreshed: Refreshed | None = None
    dead: FailedRefresh | None = None
    """The dead letter. The event was obsolete if there is neither a result nor a dead letter."""
    version: int | None = None
    """Version of the failed request; None: none was sent."""
    span: "Span | None" = None
    """The span of the refresh, if it is traced; ended with the event."""

    @property
    def failed_subject(self) -> SnapshotSubject | None:
        """The subject of a permanent failure; None: no failure, or not a valid subject."""
        try:
            return None if self.dead is None else SnapshotSubject.from_id(self.dead.subject_id)
        except TidegateError:
            return None


class StoppedEarly(Exception):
    """The worker is stopping and a step cannot be done now; the events are delivered again."""


class RefreshDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh worker needs of its process."""

    database: Database
    breaker: CircuitBreaker
    """Circuit breaker of the database."""
    transport: Transport
    coalescer: Coalescer
    cache: SnapshotCache
    feed: RefreshFeed
    clock: Clock
    lease_lasted_since: Callable[[float], bool]
    """Returns whether the lease of this process is known to have lasted since a time of the monotonic clock, in ms."""
    write_within: timedelta
    keeps_history: bool = True
    """Whether earlier versions of snapshots are kept."""


class RefreshCommitter:
    """Commits the finished events of one consumer."""

    def __init__(
        self,
        dependencies: RefreshDependencies,
        consumer: TransportConsumer,
        *,
        priority: Priority,
        settings: WorkerSettings,
        on_finished: Callable[[int], None],
        on_held: Callable[[bool], None],
    ) -> None:
        """`on_finished` is called with the number of events that ended, `on_held` with whether reading must stop."""
        self._dependencies, self._consumer, self._priority = dependencies, consumer, priority
        self._batch, self._gather_s = settings.batch, settings.gather.total_seconds()
        self._on_finished, self._on_held = on_finished, on_held
        self._waiting: deque[FinishedEvent | RetryNote] = deque()
        self._arrived, self._filled, self._finishing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_paused = False
        priority_name = priority.value.lower()
        self._write_outage = Outage(f"snapshots.write.{priority_name}")
        self._server_outage = Outage(f"snapshots.settle.{priority_name}")
        self._copy_outage = Outage(f"snapshots.copy.{priority_name}")
        self._seconds = metrics.UPDATE_PROCESS_DURATION.labels(priority)

    def put(self, item: FinishedEvent | RetryNote) -> None:
        """Add an event or note to the next batch."""
        self._waiting.append(item)
        self._arrived.set()
        if len(self._waiting) >= self._batch:
            self._filled.set()

    def finish(self) -> None:
        """Commit what is waiting, unless a server is unavailable, and stop."""
        for each in (self._finishing, self._filled, self._arrived):
            each.set()

    async def run(self) -> None:
        """Commit batches until `finish` is called. The next batch gathers while one is written."""
        with suppress(StoppedEarly):
            while not (self._finishing.is_set() and not self._waiting):
                if not self._waiting:
                    await self._arrived.wait()
                    self._arrived.clear()
                    continue
                # The number is read again after the pause: results that came meanwhile join the batch.
                await self._gather()
                most = min(len(self._waiting), self._batch)
                await self._commit_batch([self._waiting.popleft() for _ in range(most)])

    async def _gather(self) -> None:
        """Wait a moment for more results: a batch of twenty costs about as much as one result."""
        if len(self._waiting) < self._batch and not self._finishing.is_set():
            self._filled.clear()
            await occurs(self._filled, within_s=self._gather_s)

    async def _commit_batch(self, items: Sequence[FinishedEvent | RetryNote]) -> None:
        """Write a batch: results, copies, dead letters, acknowledgements and announcements, in this order."""
        # 1. Drop results of events that another worker has now. `began_s` is taken first: `_copy` treats results with
        # care if this round takes long.
        began_ns, began_s = time.time_ns(), time.monotonic()
        lost = await self._drop_reassigned([item for item in items if isinstance(item, FinishedEvent)])
        items = [item for item in items if id(item) not in lost]
        done = [item for item in items if isinstance(item, FinishedEvent)]
        # 2. Write to the database. What it rejects goes back to the transport and must not be acknowledged.
        written = await self._write(items)
        given_up = {id(each) for each in done if each.refreshed is not None} - written.keys()
        ended = [each for each in done if id(each) not in given_up]
        failed = [each for each in ended if each.failed_subject is not None]
        # 3. Update the copies and publish dead letters. Both come before the acknowledgement: a
        # crash in between repeats them.
        await self._copy(list(written.values()), failed, began_s)
        if letters := [(each.dead.subject_id, each.dead.encode()) for each in ended if each.dead is not None]:
            await self._retry(lambda: self._dependencies.transport.publish(RefreshTopic.DEAD, letters))
        # 4. Acknowledge only what is written, published or obsolete. An event that was given back stays unacknowledged.
        if ended:
            await self._retry(lambda: self._consumer.ack([each.delivery for each in ended]))
        # 5. Make room for new events only now: events in progress include those that wait for the database.
        self._on_finished(len(done))
        for each in ended:
            self._count(each)
            if each.span is not None:
                events.end_refresh(each.span, each.dead, is_written=id(each) in written, began_ns=began_ns)
        # 6. Last, since a lost step costs only a timeout: a lock expires, and a waiting reader reads again.
        await self._announce([each for each in ended if id(each) in written], list(written.values()), failed)

    async def _drop_reassigned(self, done: Sequence[FinishedEvent]) -> set[int]:
        """Drop results of events that were assigned to another worker; return the object ids of these events.

        If the server is unavailable, none is dropped: the row keeps the newer result in any case.
        """
        # The earliest event decides for the whole batch: the lease has to cover the time since then.
        received_ms = min((each.received_at for each in done), default=0.0) * 1000
        if not done or self._dependencies.lease_lasted_since(received_ms):
            return set()
        try:
            held = {each.handle for each in await self._consumer.held([each.delivery for each in done])}
        except Unavailable:
            return set()
        if lost := [each for each in done if each.delivery.handle not in held]:
            log.warning("snapshots.results_dropped", events=len(lost))
            # This also makes the consumer forget them. The server ignores events that another worker has.
            await self._retry(lambda: self._consumer.retry([each.delivery for each in lost], _LOST))
            self._on_finished(len(lost))
            for each in lost:
                if each.span is not None:
                    events.end_refresh(each.span, None, is_written=False, began_ns=time.time_ns())
        return {id(each) for each in lost}

    async def _write(self, items: Sequence[FinishedEvent | RetryNote]) -> dict[int, WrittenResult]:
        """Write a batch; if that fails, each item on its own. Returns the results by object id of their events."""
        writers = [item for item in items if isinstance(item, RetryNote) or item.refreshed or item.dead]
        if not writers:
            return {}
        try:
            return await self._commit(writers)
        except StoppedEarly:
            raise
        except Exception as error:
            if len(writers) > 1:
                log.error("snapshots.batch_refused", subjects=len(writers), exc_info=error)
                # Find the rejected result by writing each item in its own transaction, so that one bad
                # result costs only itself.
                return {key: each for item in writers for key, each in (await self._write([item])).items()}
            return await self._give_back(writers[0], error)

    async def _give_back(self, item: FinishedEvent | RetryNote, error: Exception) -> dict[int, WrittenResult]:
        """The database rejects this result: have its event delivered again, until it becomes a dead letter."""
        log.error("snapshots.result_refused", exc_info=error)
        if isinstance(item, FinishedEvent) and item.refreshed is not None:
            reason = f"its result could not be written: {type(error).__name__}"
            await self._retry(lambda: self._consumer.retry([item.delivery], reason))
        return {}

    async def _commit(self, items: Sequence[FinishedEvent | RetryNote]) -> dict[int, WrittenResult]:
        """Write in one transaction; repeat it while the database is unavailable."""
        tries = 0
        while True:
            began = time.perf_counter()
            try:
                # The breaker is shared with the readers of this process: while it is open, no worker
                # tries the database either.
                with self._dependencies.breaker.attempt():
                    async with time_limit(self._dependencies.write_within.total_seconds()):
                        effects = await self._dependencies.database.transaction(
                            write_all, items, self._dependencies.keeps_history
                        )
            except Unavailable as error:
                tries += 1
                await self._hold(error, tries)
            except TimeoutError:
                tries += 1
                await self._hold(
                    DatabaseUnavailable("no answer in time", server=self._dependencies.database.name), tries
                )
            else:
                metrics.DB_UPSERT_DURATION.observe(time.perf_counter() - began)
                await self._resume()
                done = [item for item in items if isinstance(item, FinishedEvent) and item.refreshed is not None]
                # `write_all` returns an effect for each result, in the same order, and none for failures and notes.
                written = zip(done, effects, strict=True)
                return {id(each): WrittenResult(each.refreshed, effect) for each, effect in written if each.refreshed}

    async def _hold(self, error: Unavailable, tries: int) -> None:
        """Stop reading and wait before the next try; raises `StoppedEarly` if the worker is stopping."""
        if not self._is_paused:
            # First tell the reader to stop, then the transport: an event that is read in between
            # would wait here for nothing.
            self._is_paused = True
            self._on_held(True)
            await self._retry(self._consumer.pause)
        if isinstance(error, CircuitOpen):
            # The breaker knows when it allows the next trial. An earlier attempt would fail
            # without reaching the database.
            pause_s = max(0.05, (error.retry_at_ms - to_ms(self._dependencies.clock.now())) / 1000)
            is_finishing = await occurs(self._finishing, within_s=pause_s)
        else:
            is_finishing = await self._write_outage.pause(error, tries, stopping=self._finishing)
        if is_finishing:
            raise StoppedEarly

    async def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._write_outage.over()
            # Reverse order of `_hold`: the transport is ready before the reader asks it.
            await self._retry(self._consumer.resume)
            self._on_held(False)

    async def _retry(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step, and repeat it while the server is unavailable or refuses; raises `StoppedEarly` at shutdown."""
        try:
            return await self._server_outage.retry(step, stopping=self._finishing)
        except Unavailable as error:
            raise StoppedEarly from error

    async def _copy(self, written: Sequence[WrittenResult], failed: Sequence[FinishedEvent], began_s: float) -> None:
        """Update the copies on the Valkey server. Before the acknowledgement, so that it is repeated after a crash.

        If the server refuses writes, the copies are deleted instead. If it refuses that too, both are repeated until
        one succeeds.
        """
        cache, now = self._dependencies.cache, self._dependencies.clock.now()
        notes = [
            (each.subject, each.version, RefreshFailure.shown(each.reason, each.message, now))
            for each in map(_failed_attempt, failed)
            if each.version is not None
        ]

        async def put() -> None:
            # A result for which no reader waited is copied only if there is a copy already. So is a late result: if
            # there is no entry, a newer result may have been copied and expired.
            is_late = time.monotonic() - began_s > MARKED_FOR_S / 2
            try:
                await cache.put_failed(notes)
                await cache.put_written(written, only_known=is_late or self._priority is Priority.LOW)
            except ServerRefused as error:
                self._copy_outage.note(error)
                # A server that is out of memory refuses writes but accepts UNLINK. Without the old copy, readers get
                # the new row from SQL.
                await cache.forget([each.result.subject for each in written])
            else:
                self._copy_outage.over()

        if written or notes:
            await self._retry(put)

    async def _announce(
        self, done: Sequence[FinishedEvent], written: Sequence[WrittenResult], failed: Sequence[FinishedEvent]
    ) -> None:
        """Release the locks and wake waiting readers. Both have a timeout if this step is lost.

        Runs after the copies: otherwise a reader of the old copy would find no lock and request another refresh.
        """
        ended = [(each.event.subject_id, each.event.version) for each in (*done, *failed) if each.event is not None]
        try:
            if ended:
                await self._dependencies.coalescer.release_many(ended)
        except Unavailable as error:
            self._copy_outage.note(error)
        except TidegateError as error:
            log.warning("snapshots.tell_failed", subjects=len(ended), error=str(error))
        refreshed = [each.result.subject.id for each in written if each.effect.is_taken]
        await self._dependencies.feed.tell(
            [*refreshed, *(each.dead.subject_id for each in failed if each.dead is not None)]
        )

    def _count(self, each: FinishedEvent) -> None:
        self._seconds.observe(time.monotonic() - each.received_at)
        if each.dead is not None:
            metrics.UPDATE_PROCESS_ERROR.labels(each.dead.reason).inc()
            metrics.DLQ_MESSAGES.labels(each.dead.reason).inc()
            log.warning(
                "snapshots.dead", subject=each.dead.subject_id, reason=each.dead.reason, error=each.dead.message
            )


def write_all(tx: Transaction, items: Sequence[FinishedEvent | RetryNote], keeps_history: bool) -> list[WriteEffect]:
    """Write results first, so that no failure is recorded that a success of the same batch supersedes."""
    results = [item.refreshed for item in items if isinstance(item, FinishedEvent) and item.refreshed]
    effects = store.write_round(tx, results, keeps_history)
    store.record_failures(
        tx, [_failed_attempt(item) for item in items if isinstance(item, RetryNote) or item.failed_subject]
    )
    return effects


def _failed_attempt(item: FinishedEvent | RetryNote) -> FailedAttempt:
    if isinstance(item, RetryNote):
        return FailedAttempt(
            subject=item.subject,
            state=RETRYING,
            version=item.version,
            reason=FailureReason.UPSTREAM_5XX,
            message=item.message,
            tries=item.tries,
        )
    dead, subject, event = item.dead, item.failed_subject, item.event
    assert dead is not None
    assert subject is not None
    version = item.version if item.version is not None or event is None else event.version
    return FailedAttempt(
        subject=subject, version=version, reason=dead.reason, message=dead.message, tries=dead.retries + 1
    )
