"""One member of a consumer group on Kafka.

Messages that were delivered and are not done are recorded in `MemberOffsets`. Only offsets below the first message that
is not done are committed, after the database. A message that is given back is queued in this process and delivered
again; its offset was not committed, so Kafka delivers it again if the process dies.

When members join or leave, Kafka reassigns the partitions. Messages of a partition that went to another member belong
to that member, and this one commits nothing of it. After an assignment, nothing is delivered until the committed
offsets of all assigned partitions are read and the new ownership is recorded.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from itertools import count
from typing import Any, cast

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.core.clock import milliseconds
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka.connection import (
    client_options,
    stop_consumer,
    stop_in_time,
    translate,
    translated_errors,
)
from tidegate.systems.snapshots.transports.kafka.partitions import MemberOffsets, PartitionState, partition_states
from tidegate.systems.snapshots.transports.protocol import Delivery

log = get_logger(__name__)

_FETCH_WAIT_MS, _IDLE_FETCH_WAIT_MS = 100, 1000
"""How long a broker delays an empty answer. After messages of a partition were taken, the partition is only in the next
request, so a message can be late by this time. When idle, all partitions are in the waiting request, so the next
message arrives at once, and a longer time saves requests."""
_IDLE_AFTER_S = 5.0
_MAX_POLL_MS = 86_400_000
"""A member may be paused for hours without reading. A dead process is detected by its heartbeats."""
_REBALANCE_MS = 30_000
"""How long members have to rejoin when partitions are reassigned; also the longest time that joining takes."""

Records = Mapping[TopicPartition, Sequence[ConsumerRecord[bytes, bytes]]]


class AssignmentState(Enum):
    """State of the current assignment of partitions."""

    UNKNOWN = auto()
    """The committed offsets are not read yet: nothing is committed."""
    LOADED = auto()
    """The committed offsets are read; the new ownership is not recorded yet."""
    OPEN = auto()
    """The ownership is recorded: messages are delivered."""
    CLOSING = auto()
    """The partitions are being revoked, or the member is leaving. Finished messages are still committed."""


class KafkaConsumer(ConsumerRebalanceListener):
    """See `TransportConsumer`. Joins its group with the first `read`."""

    def __init__(self, settings: KafkaSettings, topic: str, group: str) -> None:
        self._settings, self._topic, self._group = settings, topic, group
        self._outage = Outage(f"kafka.{topic}")
        self._member: AIOKafkaConsumer | None = None
        self._joining: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._offsets = MemberOffsets()
        self._ready: deque[Delivery] = deque()
        # Received messages that must be recorded before delivery, since earlier owners died with them.
        self._unrecorded: deque[Delivery] = deque()
        self._paused = self._has_left = False
        self._assignment = AssignmentState.UNKNOWN
        self._wakeup = asyncio.Event()
        self._committing = asyncio.Lock()

    async def read(self, count: int, within_s: float) -> list[Delivery]:
        """See `TransportConsumer`."""
        require_positive("count", count)
        require_not_negative("within_s", within_s)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            # Cleared before the state is examined: what becomes ready after that sets it again, and the wait returns.
            self._wakeup.clear()
            await self._raise_if_start_failed()
            # Also after a cancelled read: its unrecorded messages are still queued.
            await self._record_deliveries()
            if self._ready and not self._paused and self._assignment is AssignmentState.OPEN:
                return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
            left = deadline - loop.time()
            if left <= 0:
                return []
            await self._wait_for_more(count, left)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """See `TransportConsumer`. Messages of a partition that went to another member are delivered again there."""
        for each in deliveries:
            # Handles of an earlier assignment are ignored, so a late acknowledgement commits nothing of another member.
            self._offsets.done(each.handle)
        await self._commit()

    async def held(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """See `TransportConsumer`. This member may not know yet that a partition was reassigned."""
        return [each for each in deliveries if self._offsets.holds(each.handle)]

    async def retry(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """See `TransportConsumer`."""
        del reason  # Kafka does not store it
        # Messages of revoked partitions belong to another member and must not be delivered here again.
        assigned = [each for each in deliveries if self._offsets.holds(each.handle)]
        for each in assigned:
            times, _ = self._offsets.begin(each.handle)
            self._ready.append(msgspec.structs.replace(each, deliveries=max(times, each.deliveries + 1)))
        self._wakeup.set()

    async def pause(self) -> None:
        """See `TransportConsumer`."""
        self._paused = True
        self._stop_fetching()

    async def resume(self) -> None:
        """See `TransportConsumer`."""
        self._paused = False
        self._resume_fetching()

    async def leave(self) -> None:
        """See `TransportConsumer`."""
        # Set first: an assignment that the driver reports during the steps below is ignored.
        self._has_left = True
        await self._close_assignment()
        await self._leave_group()

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride] - it may be a coroutine
        self, revoked: Iterable[TopicPartition]
    ) -> None:
        """Called by the driver before partitions are reassigned: the last chance to commit."""
        del revoked
        await self._close_assignment()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by the driver after an assignment and before it fetches.

        Does not wait, because the driver sends no heartbeats meanwhile.
        """
        if self._member is None or self._has_left:
            return
        assigned = list(assigned)
        self._assignment = AssignmentState.UNKNOWN
        self._stop_fetching()
        # Partitions that went away are forgotten at once. Those that stay keep their messages in progress; `_load`
        # decides whether they continue.
        self._offsets.keep_only({each.partition for each in assigned})
        self._starting = asyncio.create_task(self._start(self._member, assigned))
        self._starting.add_done_callback(lambda _: self._wakeup.set())

    async def _start(self, member: AIOKafkaConsumer, assigned: list[TopicPartition]) -> None:
        """Read the committed offsets, record the ownership, and start delivery.

        Retries with growing pauses while the broker is unavailable or refuses. Other errors are raised by `read`.
        """
        for attempt in count(1):
            try:
                async with translated_errors(self._settings, "to join"):
                    found = await partition_states(member, assigned)
                self._load(member, found)
                # This commit records the ownership (`open`). Only then may messages be delivered; see `partitions`.
                if not await self._commit():
                    return  # the partitions are being reassigned again
                break
            except Unavailable as error:
                await self._outage.pause(error, attempt)
        self._outage.over()
        self._assignment = AssignmentState.OPEN
        self._resume_fetching()
        log.debug("kafka.assigned", topic=self._topic, group=self._group, partitions=len(assigned))

    def _load(self, member: AIOKafkaConsumer, found: Mapping[TopicPartition, PartitionState]) -> None:
        """Begin or continue the progress of each partition, without an await in between."""
        for partition, state in found.items():
            number = partition.partition
            came = self._offsets.next(number)
            # The partition stayed with this member: continue, with what others committed in the meantime.
            if came is not None and came <= state.end:
                self._offsets.continue_with(number, state.known)
                continue
            # A new partition, or one that lost messages: start from the beginning. Handles given out before are void.
            self._offsets.forget(number)
            self._offsets.open(number, state.start, state.delivery_counts(), state.known)
            if state.lost_its_end:
                # The committed offset is beyond the end of the log, so the driver cannot continue there.
                member.seek(partition, state.start)
        # Queued messages of lost assignments are removed before anything is delivered.
        self._ready = deque(each for each in self._ready if self._offsets.holds(each.handle))
        self._unrecorded = deque(each for each in self._unrecorded if self._offsets.holds(each.handle))
        self._assignment = AssignmentState.LOADED

    async def _close_assignment(self) -> None:
        """Commit what is done, and that the partitions were left in order."""
        # A `_start` that is still running would open the assignment again.
        await self._stop_starting()
        self._stop_fetching()
        if self._assignment is not AssignmentState.UNKNOWN:
            self._assignment = AssignmentState.CLOSING
        with suppress(Unavailable):
            await self._commit()

    async def _stop_starting(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    async def _raise_if_start_failed(self) -> None:
        """Raise the error with which `_start` ended, after leaving the group; the next read joins again."""
        starting = self._starting
        if starting is not None and starting.done() and not starting.cancelled() and (error := starting.exception()):
            await self._leave_group()
            raise error

    def _stop_fetching(self) -> None:
        """Stop fetching."""
        if self._member is not None:
            self._member.pause(*self._member.assignment())

    def _resume_fetching(self) -> None:
        """Resume fetching if possible, and wake the reader."""
        if self._member is not None and not self._paused and self._assignment is AssignmentState.OPEN:
            self._member.resume(*self._member.paused())
        self._wakeup.set()

    async def _record_deliveries(self) -> None:
        """Record deliveries that must be recorded first, and make them ready. Cancelling it loses nothing."""
        if self._unrecorded and await self._commit():
            self._ready.extend(self._unrecorded)
            self._unrecorded.clear()

    async def _wait_for_more(self, count: int, within_s: float) -> None:
        """Wait until messages may be ready, or the time is over."""
        waiting: set[asyncio.Task[Any]] = {asyncio.create_task(self._wakeup.wait())}
        if not self._paused:
            # A paused member does not fetch. Its heartbeats continue, so it keeps its partitions.
            waiting.add(asyncio.create_task(self._fetch(count, within_s)))
        try:
            ended, _ = await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            # Wait until the cancelled fetch has ended, because only one may run at a time.
            await asyncio.gather(*waiting, return_exceptions=True)
        for task in ended:
            task.result()

    async def _fetch(self, count: int, within_s: float) -> None:
        """Fetch messages. Cancelling it loses nothing, because there is no await after messages are taken."""
        member = await self._joined()
        try:
            # First with the short wait. If nothing comes, switch to the longer one until a message arrives.
            found = await _get(member, count, min(within_s, _IDLE_AFTER_S))
            if not found and within_s > _IDLE_AFTER_S:
                _set_fetch_wait(member, _IDLE_FETCH_WAIT_MS)
                found = await _get(member, count, within_s - _IDLE_AFTER_S)
            if found:
                _set_fetch_wait(member, _FETCH_WAIT_MS)
        except KafkaError as error:
            # The driver retries retriable errors itself. After others, join again.
            await self._leave_group()
            raise translate(self._settings, "to read", error) from None
        for partition, records in found.items():
            for record in records:
                if handle := self._offsets.take(partition.partition, record.offset):
                    times, is_counted = self._offsets.begin(handle)
                    # A counted message is delivered only after its count is committed: otherwise a crash that it causes
                    # would not be counted.
                    (self._unrecorded if is_counted else self._ready).append(_delivery(record, handle, times))

    async def _joined(self) -> AIOKafkaConsumer:
        # In a separate task, because a cancelled read must not interrupt it.
        if self._joining is None:
            self._joining = asyncio.create_task(self._join())
        joining = self._joining
        try:
            await asyncio.shield(joining)
        except (KafkaError, OSError) as error:
            raise translate(self._settings, "to join", error) from None
        finally:
            # Only a failed attempt is forgotten, so that the next read joins again.
            if joining.done() and (joining.cancelled() or joining.exception() is not None):
                self._joining = None
        assert self._member is not None
        return self._member

    async def _join(self) -> None:
        """Create the member, and let it join the group."""
        member = self._member = AIOKafkaConsumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=milliseconds(self._settings.session),
            heartbeat_interval_ms=milliseconds(self._settings.session / 3),
            max_poll_interval_ms=_MAX_POLL_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            **client_options(self._settings, request_timeout_ms=_REBALANCE_MS + 10_000),
        )
        try:
            member.subscribe([self._topic], listener=self)
            await member.start()
        except BaseException:
            self._member = None
            await stop_in_time(stop_consumer(member))
            raise

    async def _commit(self) -> bool:
        """Commit finished messages; one commit at a time, each with the latest state.

        False: the partitions are being reassigned; what is still assigned afterwards is committed then.
        """
        async with self._committing:
            if self._assignment is AssignmentState.UNKNOWN:
                return False
            # Computed under the lock: the commit has the latest state, and an older one never follows a newer one.
            commits = self._offsets.to_commit(is_open=self._assignment is not AssignmentState.CLOSING)
            if self._member is None or not commits:
                return True
            by_partition = {TopicPartition(self._topic, number): commit for number, commit in commits.items()}
            async with translated_errors(self._settings, "to commit"):
                try:
                    await self._member.commit(by_partition)
                # A rebalance is going on. It is not an error: the progress is committed after the next assignment.
                except (CommitFailedError, IllegalStateError):
                    log.debug("kafka.commit_deferred", topic=self._topic, group=self._group)
                    return False
            self._offsets.note_committed(commits)
            return True

    async def _leave_group(self) -> None:
        self._assignment = AssignmentState.UNKNOWN
        await self._stop_starting()
        joining, self._joining = self._joining, None
        if joining is not None and not joining.done():
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        member, self._member = self._member, None
        if member is not None:
            await stop_in_time(stop_consumer(member))
        # All handles given out before are unknown from now on; Kafka delivers their messages again.
        self._offsets, self._ready, self._unrecorded = MemberOffsets(), deque(), deque()


async def _get(member: AIOKafkaConsumer, count: int, within_s: float) -> Records:
    return cast("Records", await member.getmany(timeout_ms=int(within_s * 1000) + 1, max_records=count))


def _set_fetch_wait(member: AIOKafkaConsumer, for_ms: int) -> None:
    """Set the wait of the broker, from the next request on."""
    fetcher: Any = member._fetcher  # pyright: ignore[reportPrivateUsage] - the driver reads the option only at start
    fetcher._fetch_max_wait_ms = for_ms


def _delivery(record: "ConsumerRecord[bytes, bytes]", handle: str, times: int) -> Delivery:
    return Delivery(
        key=(record.key or b"").decode(errors="replace"),
        value=record.value or b"",
        handle=handle,
        deliveries=times,
    )
