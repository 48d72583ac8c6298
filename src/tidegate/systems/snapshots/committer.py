"""What calls brought is written in batches, and acknowledged when it is safe; in this order:

    still ours -> database committed -> copied to the server -> dead letters published -> acknowledged
               -> locks released -> readers told

A process may die between any two of these steps: then the event comes again, and writing it again changes nothing but
the time of the check. A database that is away or too slow holds everything up: nothing is acknowledged, nothing more is
read, nothing becomes a dead letter, and what is in hand is written when it is back.

A process whose lease may have ended, because it was frozen or cut off, asks first which events are still its own, and
drops the results of the others. It may freeze again behind that question: then `precedence` keeps the newer result.
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
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.primitives.coalescer import Coalescer
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import occurs, patience
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots import store, tracing
from tidegate.systems.snapshots.cache import MARKED_FOR_S, RefreshFeed, SnapshotCache, WrittenResult
from tidegate.systems.snapshots.cached_snapshot import RefreshFailure
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason, RefreshEvent
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.settings import WorkerSettings
from tidegate.systems.snapshots.store import RETRYING, FailedAttempt, Refreshed, WriteEffect
from tidegate.systems.snapshots.transports.protocol import Delivery, RefreshTopic, Transport, TransportConsumer

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

log = get_logger(__name__)

T = TypeVar("T")

_LOST = "its worker was away for longer than its lease"


class RetryNote(msgspec.Struct, frozen=True):
    """A subject's refresh is being tried again."""

    subject: SnapshotSubject
    version: int
    """Of the call that failed."""
    message: str
    tries: int


class FinishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that came to an end, one way or another."""

    delivery: Delivery
    received_at: float
    """On the monotonic clock, in seconds."""
    event: RefreshEvent | None = None
    """None where the delivery holds none that can be read, or it was obsolete."""
    refreshed: Refreshed | None = None
    dead: FailedRefresh | None = None
    """Neither of both: it was obsolete."""
    version: int | None = None
    """Of the call that failed; None: none was made."""
    span: "Span | None" = None
    """Where it is traced: to be ended with it."""

    @property
    def failed_subject(self) -> SnapshotSubject | None:
        """Whose refresh failed for good; None where none did, or nobody can tell whose."""
        try:
            return None if self.dead is None else SnapshotSubject.from_id(self.dead.subject_id)
        except TidegateError:
            return None


class StoppedEarly(Exception):
    """We are told to stop, and it cannot be done now; the events go back."""


class RefreshDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What settling stands on."""

    database: Database
    breaker: CircuitBreaker
    """Of the database."""
    transport: Transport
    coalescer: Coalescer
    shelf: SnapshotCache
    news: RefreshFeed
    clock: Clock
    lease_lasted_since: Callable[[float], bool]
    """Whether the lease of this process has certainly lasted since a moment of the monotonic clock, in ms."""
    write_within: timedelta
    keeps_history: bool = True
    """Whether it is remembered what a snapshot was before it changed."""


class RefreshCommitter:
    """Ends events of one priority, for one consumer."""

    def __init__(
        self,
        ground: RefreshDependencies,
        consumer: TransportConsumer,
        *,
        priority: Priority,
        lane: WorkerSettings,
        on_settled: Callable[[int], None],
        on_hold: Callable[[bool], None],
    ) -> None:
        """`on_settled` is told how many events are no longer in hand; `on_hold` whether nothing more is to be read."""
        self._ground, self._consumer, self._priority = ground, consumer, priority
        self._batch, self._gather_s = lane.batch, lane.gather.total_seconds()
        self._on_settled, self._on_hold = on_settled, on_hold
        self._waiting: deque[FinishedEvent | RetryNote] = deque()
        self._arrived, self._filled, self._finishing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_paused = False
        lane_name = priority.value.lower()
        self._unwritable = Outage(f"snapshots.write.{lane_name}")
        self._unsettled = Outage(f"snapshots.settle.{lane_name}")
        self._uncopied = Outage(f"snapshots.copy.{lane_name}")
        self._seconds = metrics.UPDATE_PROCESS_DURATION.labels(priority)

    def put(self, item: FinishedEvent | RetryNote) -> None:
        """Have it written, soon and with others."""
        self._waiting.append(item)
        self._arrived.set()
        if len(self._waiting) >= self._batch:
            self._filled.set()

    def finish(self) -> None:
        """Settle what is here, unless a server is away, and end."""
        for each in (self._finishing, self._filled, self._arrived):
            each.set()

    async def run(self) -> None:
        """Until told to finish. While one batch is written, the next gathers."""
        with suppress(StoppedEarly):
            while not (self._finishing.is_set() and not self._waiting):
                if not self._waiting:
                    await self._arrived.wait()
                    self._arrived.clear()
                    continue
                await self._gather()
                most = min(len(self._waiting), self._batch)
                await self._settle([self._waiting.popleft() for _ in range(most)])

    async def _gather(self) -> None:
        """Give others a moment to come along: a batch costs about the same whether it holds one or twenty."""
        if len(self._waiting) < self._batch and not self._finishing.is_set():
            self._filled.clear()
            await occurs(self._filled, within_s=self._gather_s)

    async def _settle(self, items: Sequence[FinishedEvent | RetryNote]) -> None:
        began_ns, began_s = time.time_ns(), time.monotonic()
        lost = await self._drop_lost([item for item in items if isinstance(item, FinishedEvent)])
        items = [item for item in items if id(item) not in lost]
        done = [item for item in items if isinstance(item, FinishedEvent)]
        written = await self._write(items)
        given_up = {id(each) for each in done if each.refreshed is not None} - written.keys()
        ended = [each for each in done if id(each) not in given_up]
        failed = [each for each in ended if each.failed_subject is not None]
        await self._copy(list(written.values()), failed, began_s)
        if letters := [(each.dead.subject_id, each.dead.encode()) for each in ended if each.dead is not None]:
            await self._insist(lambda: self._ground.transport.publish(RefreshTopic.DEAD, letters))
        if ended:
            await self._insist(lambda: self._consumer.ack([each.delivery for each in ended]))
        self._on_settled(len(done))
        for each in ended:
            self._count(each)
            if each.span is not None:
                tracing.end_refresh(each.span, each.dead, is_written=id(each) in written, began_ns=began_ns)
        await self._tell([each for each in ended if id(each) in written], list(written.values()), failed)

    async def _drop_lost(self, done: Sequence[FinishedEvent]) -> set[int]:
        """Drop what came of events that were given to another worker, and return their ids as objects.

        Where the server cannot say, none is dropped: the row keeps the newer result in any case.
        """
        received_ms = min((each.received_at for each in done), default=0.0) * 1000
        if not done or self._ground.lease_lasted_since(received_ms):
            return set()
        try:
            held = {each.handle for each in await self._consumer.held([each.delivery for each in done])}
        except Unavailable:
            return set()
        if lost := [each for each in done if each.delivery.handle not in held]:
            log.warning("snapshots.results_dropped", events=len(lost))
            await self._insist(lambda: self._consumer.retry([each.delivery for each in lost], _LOST))
            self._on_settled(len(lost))
            for each in lost:
                if each.span is not None:
                    tracing.end_refresh(each.span, None, is_written=False, began_ns=time.time_ns())
        return {id(each) for each in lost}

    async def _write(self, items: Sequence[FinishedEvent | RetryNote]) -> dict[int, WrittenResult]:
        """Write all; where one of them cannot be written, the others one by one. Returns what was written, by event."""
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
                return {key: each for item in writers for key, each in (await self._write([item])).items()}
            return await self._give_up(writers[0], error)

    async def _give_up(self, item: FinishedEvent | RetryNote, error: Exception) -> dict[int, WrittenResult]:
        """The database takes this one from nobody as it is; let somebody try again, a few times."""
        log.error("snapshots.result_refused", exc_info=error)
        if isinstance(item, FinishedEvent) and item.refreshed is not None:
            reason = f"what it brought could not be written: {type(error).__name__}"
            await self._insist(lambda: self._consumer.retry([item.delivery], reason))
        return {}

    async def _commit(self, items: Sequence[FinishedEvent | RetryNote]) -> dict[int, WrittenResult]:
        """One transaction, as often as it takes while the database is away."""
        tries = 0
        while True:
            began = time.perf_counter()
            try:
                with self._ground.breaker.attempt():
                    async with patience(self._ground.write_within.total_seconds()):
                        effects = await self._ground.database.transaction(write_all, items, self._ground.keeps_history)
            except Unavailable as error:
                tries += 1
                await self._hold(error, tries)
            except TimeoutError:
                tries += 1
                await self._hold(DatabaseUnavailable("no answer in time", server=self._ground.database.name), tries)
            else:
                metrics.DB_UPSERT_DURATION.observe(time.perf_counter() - began)
                await self._go_on()
                done = [item for item in items if isinstance(item, FinishedEvent) and item.refreshed is not None]
                written = zip(done, effects, strict=True)
                return {id(each): WrittenResult(each.refreshed, effect) for each, effect in written if each.refreshed}

    async def _hold(self, error: Unavailable, tries: int) -> None:
        """Read nothing more, and wait; raises `StoppedEarly` when we are told to stop meanwhile."""
        if not self._is_paused:
            self._is_paused = True
            self._on_hold(True)
            await self._insist(self._consumer.pause)
        if isinstance(error, CircuitOpen):
            pause_s = max(0.05, (error.retry_at_ms - to_ms(self._ground.clock.now())) / 1000)
            is_finishing = await occurs(self._finishing, within_s=pause_s)
        else:
            is_finishing = await self._unwritable.pause(error, tries, stopping=self._finishing)
        if is_finishing:
            raise StoppedEarly

    async def _go_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._unwritable.over()
            await self._insist(self._consumer.resume)
            self._on_hold(False)

    async def _insist(self, step: Callable[[], Awaitable[T]]) -> T:
        """Do a step, and repeat it while the server is away or refuses; raises `StoppedEarly` at the stop."""
        try:
            return await self._unsettled.retry(step, stopping=self._finishing)
        except Unavailable as error:
            raise StoppedEarly from error

    async def _copy(self, written: Sequence[WrittenResult], failed: Sequence[FinishedEvent], began_s: float) -> None:
        """Bring the copies on the server up to date. Before the acknowledgement: if we die, the event comes again.

        A server that takes no writes is asked to drop the copies instead. Where it refuses that too, both are tried
        again until it accepts one.
        """
        shelf, now = self._ground.shelf, self._ground.clock.now()
        notes = [
            (each.subject, each.version, RefreshFailure.shown(each.reason, each.message, now))
            for each in map(_failed_attempt, failed)
            if each.version is not None
        ]

        async def put() -> None:
            # What no reader waited for is copied only where one has read it before. The same for one that comes late:
            # where nothing is known any more, a newer result may have come and gone.
            is_late = time.monotonic() - began_s > MARKED_FOR_S / 2
            try:
                await shelf.put_failed(notes)
                await shelf.put_written(written, only_known=is_late or self._priority is Priority.LOW)
            except ServerRefused as error:
                self._uncopied.note(error)
                await shelf.forget([each.result.subject for each in written])
            else:
                self._uncopied.over()

        if written or notes:
            await self._insist(put)

    async def _tell(
        self, done: Sequence[FinishedEvent], written: Sequence[WrittenResult], failed: Sequence[FinishedEvent]
    ) -> None:
        """Release the locks, and wake the readers that wait. Both can be missed.

        After the copies: a reader of the old copy would otherwise find no lock, and have it called for once more.
        """
        ended = [(each.event.subject_id, each.event.version) for each in (*done, *failed) if each.event is not None]
        try:
            if ended:
                await self._ground.coalescer.release_many(ended)
        except Unavailable as error:
            self._uncopied.note(error)
        except TidegateError as error:
            log.warning("snapshots.tell_failed", subjects=len(ended), error=str(error))
        refreshed = [each.result.subject.id for each in written if each.effect.is_taken]
        await self._ground.news.tell([*refreshed, *(each.dead.subject_id for each in failed if each.dead is not None)])

    def _count(self, each: FinishedEvent) -> None:
        self._seconds.observe(time.monotonic() - each.received_at)
        if each.dead is not None:
            metrics.UPDATE_PROCESS_ERROR.labels(each.dead.reason).inc()
            metrics.DLQ_MESSAGES.labels(each.dead.reason).inc()
            log.warning(
                "snapshots.dead", subject=each.dead.subject_id, reason=each.dead.reason, error=each.dead.message
            )


def write_all(tx: Transaction, items: Sequence[FinishedEvent | RetryNote], keeps_history: bool) -> list[WriteEffect]:
    """Trouble last, so that none is noted that a success in the same batch has ended."""
    results = [item.refreshed for item in items if isinstance(item, FinishedEvent) and item.refreshed]
    effects = store.write_round(tx, results, keeps_history)
    store.note_failures(
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
