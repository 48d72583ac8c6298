"""The refresh worker: receives events, skips obsolete ones, and has the others called, written and acknowledged.

    receive -> obsolete? -> permit -> call -> read -> hash -> write in a batch -> acknowledge -> release the lock

A worker has one reader and one task per event in progress. It stops reading while the maximum number of events is in
progress, and while the database is unavailable. On shutdown, events that wait for a permit are given back at once;
requests in progress are finished and their results are written.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.arguments import require_name
from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, first_of, unless
from tidegate.systems.snapshots import events, metrics
from tidegate.systems.snapshots.calls import (
    CancellableWait,
    FailedCall,
    ObsoleteEvent,
    PermanentFailure,
    RefreshCalls,
)
from tidegate.systems.snapshots.committer import FinishedEvent, RefreshCommitter, RefreshDependencies, RetryNote
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason, RefreshEvent, UnknownSchema
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.settings import WorkerSettings
from tidegate.systems.snapshots.transports.protocol import GROUPS, Delivery, Transport, TransportConsumer, topic_for

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

log = get_logger(__name__)

_LISTEN_S = 60.0
_LEAVE_WITHIN_S = 5.0

ReceivedEvent = tuple[Delivery, RefreshEvent]


class WorkerName(msgspec.Struct, frozen=True, kw_only=True):
    """Name and priority of a worker."""

    owner: str
    """The name of the process in dead letters."""
    priority: Priority
    most_deliveries: int
    """An event that was delivered more often becomes a dead letter."""


class RefreshWorker:
    """Service that processes the events of one priority."""

    def __init__(
        self,
        name: WorkerName,
        settings: WorkerSettings,
        calls: RefreshCalls,
        dependencies: RefreshDependencies,
        source: Transport,
    ) -> None:
        """`source`: transport from which events are read. Dead letters go to the transport of `dependencies`."""
        self._name, self._settings, self._calls, self._dependencies, self._source = (
            name,
            settings,
            calls,
            dependencies,
            source,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """See `Service`."""
        topic = topic_for(self._name.priority)
        consumer = self._source.consumer(topic, GROUPS[topic])
        run = _WorkerRun(
            self._name, self._settings, self._calls, self._dependencies, consumer=consumer, stopping=stopping
        )
        try:
            await run.run()
        finally:
            try:
                async with asyncio.timeout(_LEAVE_WITHIN_S):
                    await consumer.leave()
            except (Unavailable, TimeoutError) as error:
                # The events in progress go to other processes when the lease has ended.
                log.warning("snapshots.leave_failed", error=str(error) or "no answer in time")


class _WorkerRun:
    """One run of the worker, from start to stop."""

    def __init__(
        self,
        name: WorkerName,
        settings: WorkerSettings,
        calls: RefreshCalls,
        dependencies: RefreshDependencies,
        *,
        consumer: TransportConsumer,
        stopping: asyncio.Event,
    ) -> None:
        self._name, self._settings, self._calls, self._dependencies = name, settings, calls, dependencies
        self._consumer, self._stopping = consumer, stopping
        self._committer = RefreshCommitter(
            dependencies,
            consumer,
            priority=name.priority,
            settings=settings,
            on_finished=self._release,
            on_held=self._set_held,
        )
        self._in_hand, self._is_held = 0, False
        self._unreadable = Outage(f"snapshots.read.{name.priority.value.lower()}")
        self._changed, self._interrupted = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancellable: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        committing = asyncio.create_task(self._committer.run(), name="commit refreshes")
        # If the committer fails, the blocking read has to end; otherwise the error would be raised
        # after the next event only.
        committing.add_done_callback(lambda _: self._interrupt())
        watching = asyncio.create_task(self._interrupt_at_stop(), name="watch for the stop")
        try:
            await self._read_all(committing)
            # 1. Events that wait for a permit or a retry are given up; the transport delivers them again.
            for task in list(self._cancellable):
                task.cancel()
            # 2. Requests that were sent are finished: their answers were paid for with a permit.
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # 3. Write their results before the worker leaves its group.
            self._committer.finish()
            await committing
        finally:
            await end(watching, committing, *self._tasks)

    async def _interrupt_at_stop(self) -> None:
        await self._stopping.wait()
        self._interrupt()

    def _interrupt(self) -> None:
        self._interrupted.set()
        self._changed.set()

    async def _read_all(self, committing: asyncio.Task[None]) -> None:
        """Read events until the stop, no more than can be processed; repeat failures with growing pauses."""
        failures = 0
        while not self._stopping.is_set():
            if committing.done():
                return committing.result()  # raises the error of the committer
            room = self._settings.most_in_hand - self._in_hand
            if room <= 0 or self._is_held:
                # Cleared after the check above and without an await in between: a change that
                # follows wakes the wait below.
                self._changed.clear()
                await first_of(self._changed, self._stopping)
                continue
            try:
                count = min(room, self._settings.batch)
                # Reading never takes more events than can be worked on. Events that are not taken
                # can go to other processes.
                deliveries = await unless(self._interrupted, self._consumer.read(count, _LISTEN_S))
                failures = 0
                self._unreadable.over()
            except Unavailable as error:
                failures += 1
                await self._unreadable.pause(error, failures, stopping=self._stopping)
                continue
            if deliveries:
                await self._start(deliveries)
        return None

    async def _start(self, deliveries: Sequence[Delivery]) -> None:
        # Counted before the first await, so that the reader never takes more than the limit.
        self._in_hand += len(deliveries)
        received_at = time.monotonic()
        events = [event for each in deliveries if (event := self._decode(each, received_at)) is not None]
        for (delivery, event), is_obsolete in zip(events, await self._are_obsolete(events), strict=True):
            if is_obsolete:
                self._skip(delivery, received_at)
                continue
            work = self._work(delivery, event, received_at)
            task = asyncio.create_task(work, name=f"refresh {event.subject_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _decode(self, delivery: Delivery, received_at: float) -> ReceivedEvent | None:
        """Decode an event. One that cannot be read, or that was delivered too often, becomes a dead letter."""
        if delivery.deliveries > self._name.most_deliveries:
            # An event that kills its process is never reported as failed. Only the number of deliveries shows it.
            message = f"it was delivered {delivery.deliveries - 1} times without a result"
            failure = PermanentFailure(reason=FailureReason.WORKER_CRASHED, message=message)
            self._dead_letter(delivery, failure, received_at, event=_event_in(delivery.value))
            return None
        try:
            event = RefreshEvent.decode(delivery.value)
            require_name("subject", event.subject.id)
        except Exception as error:  # any error: it would stop every worker that reads the event
            message = str(error) if isinstance(error, TidegateError) else f"{type(error).__name__}: {error}"
            self._dead_letter(
                delivery, PermanentFailure(reason=FailureReason.UNKNOWN_SCHEMA, message=message), received_at
            )
            return None
        return delivery, event

    async def _are_obsolete(self, events: Sequence[ReceivedEvent]) -> list[bool]:
        """Return which events are obsolete; none, if the server is unavailable: then there are no permits either."""
        try:
            return await self._dependencies.coalescer.are_obsolete(
                [(each.subject_id, each.version) for _, each in events]
            )
        except Unavailable:
            return [False] * len(events)

    async def _work(self, delivery: Delivery, event: RefreshEvent, received_at: float) -> None:
        """Refresh the subject of one event. Pass the outcome to the committer or the dead letters, or skip it."""
        wait = CancellableWait(self._cancellable, self._stopping)
        span = events.begin_refresh(event, delivery.deliveries)
        try:
            with nullcontext() if span is None else span.current():
                outcome = await self._calls.refresh(event, wait=wait, on_retry=self._on_retry)
        except Exception as error:  # a defect: the event is delivered again, and finally becomes a dead letter
            log.exception("snapshots.refresh_crashed", subject=event.subject_id)
            await self._return(delivery, f"a worker failed: {type(error).__name__}: {error}")
            return
        match outcome:
            case ObsoleteEvent():
                self._skip(delivery, received_at, span)
            case FailedCall():
                failure, retries, version = outcome.failure, outcome.retries, outcome.version
                self._dead_letter(
                    delivery, failure, received_at, retries=retries, event=event, version=version, span=span
                )
            case refreshed:
                self._committer.put(
                    FinishedEvent(
                        delivery=delivery, received_at=received_at, event=event, refreshed=refreshed, span=span
                    )
                )

    def _on_retry(self, subject: SnapshotSubject, version: int, message: str, tries: int) -> None:
        self._committer.put(RetryNote(subject, version, message, tries))

    def _skip(self, delivery: Delivery, received_at: float, span: "Span | None" = None) -> None:
        metrics.OBSOLETE_EVENT_SKIPPED.inc()
        self._committer.put(FinishedEvent(delivery=delivery, received_at=received_at, span=span))

    def _dead_letter(
        self,
        delivery: Delivery,
        failure: PermanentFailure,
        received_at: float,
        *,
        retries: int = 0,
        event: RefreshEvent | None = None,
        version: int | None = None,
        span: "Span | None" = None,
    ) -> None:
        """Pass an event to the committer as a dead letter."""
        letter = FailedRefresh.of(
            event=delivery.value,
            subject_id=delivery.key,
            reason=failure.reason,
            message=failure.message,
            trace=failure.trace,
            retries=retries,
            failed_at=self._dependencies.clock.now(),
            worker=self._name.owner,
        )
        self._committer.put(
            FinishedEvent(
                delivery=delivery, received_at=received_at, event=event, dead=letter, version=version, span=span
            )
        )

    async def _return(self, delivery: Delivery, reason: str) -> None:
        try:
            await self._consumer.retry([delivery], reason)
        except Unavailable as error:  # the message is redelivered later
            self._unreadable.note(error)
        finally:
            self._release(1)

    def _release(self, events: int) -> None:
        self._in_hand -= events
        self._changed.set()

    def _set_held(self, is_held: bool) -> None:
        """Stop or resume reading; a blocking read is interrupted."""
        self._is_held = is_held
        if is_held:
            self._interrupted.set()
        # During shutdown the interruption stays set, so that no further read begins.
        elif not self._stopping.is_set():
            self._interrupted.clear()
        self._changed.set()


def _event_in(value: bytes) -> RefreshEvent | None:
    """Decode an event; None if it cannot be read."""
    try:
        return RefreshEvent.decode(value)
    except UnknownSchema:
        return None
