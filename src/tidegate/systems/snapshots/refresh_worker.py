"""The worker: receive, skip what is obsolete, and have the rest called, written and acknowledged.

    receive -> obsolete? -> permit -> call -> read -> hash -> written with others -> acknowledged -> lock released

A worker has one reader and as many calls under way as it has events in hand. Reading stops while it has as many as it
may, and while the database is away. Told to stop, it gives back at once what waits for a permit, ends the calls that
are under way, and writes what they bring.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.arguments import require_name
from tidegate.core.backoff import Backoff
from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, first_of, unless
from tidegate.systems.snapshots import tracing
from tidegate.systems.snapshots.calls import (
    CancellableWait,
    FailedCall,
    ObsoleteEvent,
    PermanentFailure,
    RefreshCalls,
    dead_update,
)
from tidegate.systems.snapshots.committer import FinishedEvent, RefreshCommitter, RefreshDependencies, RetryNote
from tidegate.systems.snapshots.events import FailureReason, RefreshEvent, UnknownSchema
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.settings import WorkerSettings
from tidegate.systems.snapshots.transports.protocol import GROUPS, Delivery, Transport, TransportConsumer, topic_for

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

log = get_logger(__name__)

_LISTEN_S = 60.0
_LEAVE_WITHIN_S = 5.0
_RETRIES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=10))

ReceivedEvent = tuple[Delivery, RefreshEvent]


class WorkerName(msgspec.Struct, frozen=True, kw_only=True):
    """Who it is, and what it works on."""

    owner: str
    """The process, as dead letters call it."""
    priority: Priority
    most_deliveries: int


class RefreshWorker:
    """A service: serves the events of one priority in this process."""

    def __init__(
        self,
        name: WorkerName,
        lane: WorkerSettings,
        calls: RefreshCalls,
        ground: RefreshDependencies,
        source: Transport,
    ) -> None:
        """`source`: where events are read. Dead letters go to the transport of `ground`."""
        self._name, self._lane, self._calls, self._ground, self._source = name, lane, calls, ground, source

    async def run(self, stopping: asyncio.Event) -> None:
        """See `Service`."""
        topic = topic_for(self._name.priority)
        consumer = self._source.consumer(topic, GROUPS[topic])
        shift = _WorkerRun(self._name, self._lane, self._calls, self._ground, consumer=consumer, stopping=stopping)
        try:
            await shift.run()
        finally:
            try:
                async with asyncio.timeout(_LEAVE_WITHIN_S):
                    await consumer.leave()
            except (Unavailable, TimeoutError) as error:
                # What we hold goes to others when our lease has ended.
                log.warning("snapshots.leave_failed", error=str(error) or "no answer in time")


class _WorkerRun:
    """From one start of the worker to its stop."""

    def __init__(
        self,
        name: WorkerName,
        lane: WorkerSettings,
        calls: RefreshCalls,
        ground: RefreshDependencies,
        *,
        consumer: TransportConsumer,
        stopping: asyncio.Event,
    ) -> None:
        self._name, self._lane, self._calls, self._ground = name, lane, calls, ground
        self._consumer, self._stopping = consumer, stopping
        self._settler = RefreshCommitter(
            ground,
            consumer,
            priority=name.priority,
            lane=lane,
            on_settled=self._let_go,
            on_hold=self._hold,
        )
        self._in_hand, self._is_held = 0, False
        self._unreadable = Outage(f"snapshots.read.{name.priority.value.lower()}")
        self._changed, self._interrupted = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_be_broken_off: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        settling = asyncio.create_task(self._settler.run(), name="settle refreshes")
        settling.add_done_callback(lambda _: self._interrupt())
        watching = asyncio.create_task(self._interrupt_at_stop(), name="watch for the stop")
        try:
            await self._read_all(settling)
            for task in list(self._may_be_broken_off):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._settler.finish()
            await settling
        finally:
            await end(watching, settling, *self._tasks)

    async def _interrupt_at_stop(self) -> None:
        await self._stopping.wait()
        self._interrupt()

    def _interrupt(self) -> None:
        self._interrupted.set()
        self._changed.set()

    async def _read_all(self, settling: asyncio.Task[None]) -> None:
        failures = 0
        while not self._stopping.is_set():
            if settling.done():
                return settling.result()  # it fell, and takes us with it
            room = self._lane.most_in_hand - self._in_hand
            if room <= 0 or self._is_held:
                self._changed.clear()
                await first_of(self._changed, self._stopping)
                continue
            try:
                count = min(room, self._lane.batch)
                deliveries = await unless(self._interrupted, self._consumer.read(count, _LISTEN_S))
                failures = 0
                self._unreadable.over()
            except Unavailable as error:
                failures += 1
                await self._unreadable.pause(error, failures, stopping=self._stopping)
                continue
            if deliveries:
                await self._begin(deliveries)
        return None

    async def _begin(self, deliveries: Sequence[Delivery]) -> None:
        self._in_hand += len(deliveries)
        received_at = time.monotonic()
        events = [event for each in deliveries if (event := self._understood(each, received_at)) is not None]
        for (delivery, event), is_obsolete in zip(events, await self._are_obsolete(events), strict=True):
            if is_obsolete:
                self._skip(delivery, received_at)
                continue
            work = self._work(delivery, event, received_at)
            task = asyncio.create_task(work, name=f"refresh {event.subject_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _understood(self, delivery: Delivery, received_at: float) -> ReceivedEvent | None:
        """The event of a delivery; one that cannot be understood, or that is the death of workers, is dead itself."""
        if delivery.deliveries > self._name.most_deliveries:
            message = f"it was with {delivery.deliveries - 1} workers, and none came to an end with it"
            dead = PermanentFailure(reason=FailureReason.WORKER_CRASHED, message=message)
            self._bury(delivery, dead, received_at, event=_event(delivery.value))
            return None
        try:
            event = RefreshEvent.decode(delivery.value)
            require_name("subject", event.subject.id)
        except Exception as error:  # whatever it is: it would be the end of every worker that reads it
            message = str(error) if isinstance(error, TidegateError) else f"{type(error).__name__}: {error}"
            self._bury(delivery, PermanentFailure(reason=FailureReason.UNKNOWN_SCHEMA, message=message), received_at)
            return None
        return delivery, event

    async def _are_obsolete(self, events: Sequence[ReceivedEvent]) -> list[bool]:
        """Where the server cannot say, none is: there will be no permit either, and the database has the last word."""
        try:
            return await self._ground.coalescer.are_obsolete([(each.subject_id, each.version) for _, each in events])
        except Unavailable:
            return [False] * len(events)

    async def _work(self, delivery: Delivery, event: RefreshEvent, received_at: float) -> None:
        wait = CancellableWait(self._may_be_broken_off, self._stopping)
        span = tracing.begin_refresh(event, delivery.deliveries)
        try:
            with nullcontext() if span is None else span.current():
                outcome = await self._calls.refresh(event, wait=wait, troubled=self._note)
        except Exception as error:  # a defect: another worker may fare better, and in the end it is a dead letter
            log.exception("snapshots.refresh_crashed", subject=event.subject_id)
            await self._give_back(delivery, f"a worker failed: {type(error).__name__}: {error}")
            return
        match outcome:
            case ObsoleteEvent():
                self._skip(delivery, received_at, span)
            case FailedCall():
                dead, retries, version = outcome.dead, outcome.retries, outcome.version
                self._bury(delivery, dead, received_at, retries=retries, event=event, version=version, span=span)
            case refreshed:
                self._settler.put(
                    FinishedEvent(
                        delivery=delivery, received_at=received_at, event=event, refreshed=refreshed, span=span
                    )
                )

    def _note(self, subject: SnapshotSubject, version: int, message: str, tries: int) -> None:
        self._settler.put(RetryNote(subject, version, message, tries))

    def _skip(self, delivery: Delivery, received_at: float, span: "Span | None" = None) -> None:
        metrics.OBSOLETE_EVENT_SKIPPED.inc()
        self._settler.put(FinishedEvent(delivery=delivery, received_at=received_at, span=span))

    def _bury(
        self,
        delivery: Delivery,
        dead: PermanentFailure,
        received_at: float,
        *,
        retries: int = 0,
        event: RefreshEvent | None = None,
        version: int | None = None,
        span: "Span | None" = None,
    ) -> None:
        letter = dead_update(
            event=delivery.value,
            subject_id=delivery.key,
            dead=dead,
            retries=retries,
            failed_at=self._ground.clock.now(),
            worker=self._name.owner,
        )
        self._settler.put(
            FinishedEvent(
                delivery=delivery, received_at=received_at, event=event, dead=letter, version=version, span=span
            )
        )

    async def _give_back(self, delivery: Delivery, reason: str) -> None:
        try:
            await self._consumer.retry([delivery], reason)
        except Unavailable as error:  # the message is redelivered later
            self._unreadable.note(error)
        finally:
            self._let_go(1)

    def _let_go(self, events: int) -> None:
        self._in_hand -= events
        self._changed.set()

    def _hold(self, is_held: bool) -> None:
        """Read nothing while the database is away; a read that waits is broken off."""
        self._is_held = is_held
        if is_held:
            self._interrupted.set()
        elif not self._stopping.is_set():
            self._interrupted.clear()
        self._changed.set()


def _event(value: bytes) -> RefreshEvent | None:
    """The event in these bytes, if they hold one."""
    try:
        return RefreshEvent.decode(value)
    except UnknownSchema:
        return None
