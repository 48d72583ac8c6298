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
    in_our_words,
    speaking,
    stop_consumer,
    stop_in_time,
)
from tidegate.systems.snapshots.transports.kafka.partitions import MemberOffsets, PartitionState, standings
from tidegate.systems.snapshots.transports.protocol import Delivery

log = get_logger(__name__)

_LISTEN_MS, _LISTEN_IDLY_MS = 100, 1000
"""How long a broker holds an empty answer back. A partition whose messages were just taken is asked for again only with
the next request, so this is also by how much a message may come late. After a while without any, all partitions are in
the request that waits: the next message comes at once however long that is, and asking seldom spares both sides."""
_IDLE_AFTER_S = 5.0
_A_DAY_MS = 86_400_000
"""A member that reads nothing stays one: it may be paused for hours. That a process died is seen by its heartbeat."""
_REBALANCE_MS = 30_000
"""How long members have to come back when partitions are dealt anew. Joining takes so long at worst, and no longer."""

Records = Mapping[TopicPartition, Sequence[ConsumerRecord[bytes, bytes]]]


class AssignmentState(Enum):
    """What we know of the partitions that were dealt to us."""

    UNKNOWN = auto()
    """Not yet how they stand: nothing is committed."""
    SETTLED = auto()
    """How they stand; that we have them is not on record."""
    OPEN = auto()
    """It is: messages are handed out."""
    SHUT = auto()
    """They go, or we do. What is done until then is committed still."""


class KafkaConsumer(ConsumerRebalanceListener):
    """See `Consumer`. Joins its group with the first `read`."""

    def __init__(self, settings: KafkaSettings, topic: str, group: str) -> None:
        self._settings, self._topic, self._group = settings, topic, group
        self._outage = Outage(f"kafka.{topic}")
        self._member: AIOKafkaConsumer | None = None
        self._joining: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._books = MemberOffsets()
        self._ready: deque[Delivery] = deque()
        # What came and is noted first, before it is handed out: others died with it in hand.
        self._unnoted: deque[Delivery] = deque()
        self._paused = self._has_left = False
        self._deal = AssignmentState.UNKNOWN
        self._stirred = asyncio.Event()
        self._committing = asyncio.Lock()

    async def read(self, count: int, within_s: float) -> list[Delivery]:
        """See `Consumer`."""
        require_positive("count", count)
        require_not_negative("within_s", within_s)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            self._stirred.clear()
            await self._raise_if_opening_failed()
            await self._note()
            if self._ready and not self._paused and self._deal is AssignmentState.OPEN:
                return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
            left = deadline - loop.time()
            if left <= 0:
                return []
            await self._wait_for_more(count, left)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """See `Consumer`. Those of a partition that went to another member come again there."""
        for each in deliveries:
            self._books.done(each.handle)
        await self._commit()

    async def held(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """See `Consumer`. By what this member knows: it may not have heard yet that partitions went to another."""
        return [each for each in deliveries if self._books.holds(each.handle)]

    async def retry(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """See `Consumer`."""
        del reason  # Kafka has no place for it
        ours = [each for each in deliveries if self._books.holds(each.handle)]
        for each in ours:
            times, _ = self._books.begin(each.handle)
            self._ready.append(msgspec.structs.replace(each, deliveries=max(times, each.deliveries + 1)))
        self._stirred.set()

    async def pause(self) -> None:
        """See `Consumer`."""
        self._paused = True
        self._hold()

    async def resume(self) -> None:
        """See `Consumer`."""
        self._paused = False
        self._flow()

    async def leave(self) -> None:
        """See `Consumer`."""
        self._has_left = True
        await self._shut()
        await self._let_go()

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride] - it may be a coroutine
        self, revoked: Iterable[TopicPartition]
    ) -> None:
        """Called by the driver before the partitions are dealt anew: the last chance to say what is done."""
        del revoked
        await self._shut()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by the driver when it is known which partitions are ours, and before it fetches any of them.

        It does not wait, since the driver gives no sign of life meanwhile.
        """
        if self._member is None or self._has_left:
            return
        ours = list(assigned)
        self._deal = AssignmentState.UNKNOWN
        self._hold()
        self._books.keep_only({each.partition for each in ours})
        self._opening = asyncio.create_task(self._open(self._member, ours))
        self._opening.add_done_callback(lambda _: self._stirred.set())

    async def _open(self, member: AIOKafkaConsumer, ours: list[TopicPartition]) -> None:
        """Go on where we were, or where others stopped, in order or by dying; until then nothing is handed out.

        A broker that is away or refuses is asked again, after pauses that grow. Other errors are for the reader.
        """
        for attempt in count(1):
            try:
                async with speaking(self._settings, "to join"):
                    found = await standings(member, ours)
                self._settle(member, found)
                if not await self._commit():
                    return  # they are dealt anew already
                break
            except Unavailable as error:
                await self._outage.pause(error, attempt)
        self._outage.over()
        self._deal = AssignmentState.OPEN
        self._flow()
        log.debug("kafka.assigned", topic=self._topic, group=self._group, partitions=len(ours))

    def _settle(self, member: AIOKafkaConsumer, found: Mapping[TopicPartition, PartitionState]) -> None:
        """Have a book of each. Without a wait: what is done or given back meanwhile would be of no book."""
        for partition, standing in found.items():
            number = partition.partition
            came = self._books.next(number)
            if came is not None and came <= standing.end:
                self._books.go_on(number, standing.known)
                continue
            self._books.forget(number)
            self._books.open(number, standing.start, standing.attempts(), standing.known)
            if standing.lost_its_end:
                member.seek(partition, standing.start)
        self._ready = deque(each for each in self._ready if self._books.holds(each.handle))
        self._unnoted = deque(each for each in self._unnoted if self._books.holds(each.handle))
        self._deal = AssignmentState.SETTLED

    async def _shut(self) -> None:
        """Our partitions go: say what is done, and that what is in hand did not die with us."""
        await self._stop_opening()
        self._hold()
        if self._deal is not AssignmentState.UNKNOWN:
            self._deal = AssignmentState.SHUT
        with suppress(Unavailable):
            await self._commit()

    async def _stop_opening(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)

    async def _raise_if_opening_failed(self) -> None:
        """Raise the error with which `_open` ended, after leaving the group; the next read joins again."""
        opening = self._opening
        if opening is not None and opening.done() and not opening.cancelled() and (error := opening.exception()):
            await self._let_go()
            raise error

    def _hold(self) -> None:
        """Have the driver fetch nothing."""
        if self._member is not None:
            self._member.pause(*self._member.assignment())

    def _flow(self) -> None:
        """Have it fetch, if nothing stands against it, and wake who waits."""
        if self._member is not None and not self._paused and self._deal is AssignmentState.OPEN:
            self._member.resume(*self._member.paused())
        self._stirred.set()

    async def _note(self) -> None:
        """Have it on record what is about to be handed out, or keep it; nothing is lost when it is cancelled."""
        if self._unnoted and await self._commit():
            self._ready.extend(self._unnoted)
            self._unnoted.clear()

    async def _wait_for_more(self, count: int, within_s: float) -> None:
        """Returns when something may be ready, or the time is over."""
        waiting: set[asyncio.Task[Any]] = {asyncio.create_task(self._stirred.wait())}
        if not self._paused:
            waiting.add(asyncio.create_task(self._fetch(count, within_s)))
        try:
            ended, _ = await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for task in ended:
            task.result()

    async def _fetch(self, count: int, within_s: float) -> None:
        """Put what comes among the ready. Nothing is lost when it is cancelled: no wait lies behind the taking."""
        member = await self._joined()
        try:
            found = await _get(member, count, min(within_s, _IDLE_AFTER_S))
            if not found and within_s > _IDLE_AFTER_S:
                _listen(member, _LISTEN_IDLY_MS)
                found = await _get(member, count, within_s - _IDLE_AFTER_S)
            if found:
                _listen(member, _LISTEN_MS)
        except KafkaError as error:
            # The driver tries again by itself where that helps. Here it does not: join anew.
            await self._let_go()
            raise in_our_words(self._settings, "to read", error) from None
        for partition, records in found.items():
            for record in records:
                if handle := self._books.take(partition.partition, record.offset):
                    times, is_watched = self._books.begin(handle)
                    (self._unnoted if is_watched else self._ready).append(_delivery(record, handle, times))

    async def _joined(self) -> AIOKafkaConsumer:
        # A task of its own, since a read that gives up must not end it half way.
        if self._joining is None:
            self._joining = asyncio.create_task(self._join())
        joining = self._joining
        try:
            await asyncio.shield(joining)
        except (KafkaError, OSError) as error:
            raise in_our_words(self._settings, "to join", error) from None
        finally:
            if joining.done() and (joining.cancelled() or joining.exception() is not None):
                self._joining = None
        assert self._member is not None
        return self._member

    async def _join(self) -> None:
        member = self._member = AIOKafkaConsumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=milliseconds(self._settings.session),
            heartbeat_interval_ms=milliseconds(self._settings.session / 3),
            max_poll_interval_ms=_A_DAY_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            fetch_max_wait_ms=_LISTEN_MS,
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
        """Tell Kafka what is done without a gap; one at a time, each with all that is news by then.

        False: the partitions are being dealt anew. What is still ours afterwards is committed then.
        """
        async with self._committing:
            if self._deal is AssignmentState.UNKNOWN:
                return False
            commits = self._books.to_commit(is_open=self._deal is not AssignmentState.SHUT)
            if self._member is None or not commits:
                return True
            by_partition = {TopicPartition(self._topic, number): commit for number, commit in commits.items()}
            async with speaking(self._settings, "to commit"):
                try:
                    await self._member.commit(by_partition)
                except (CommitFailedError, IllegalStateError):
                    log.debug("kafka.commit_deferred", topic=self._topic, group=self._group)
                    return False
            self._books.note_committed(commits)
            return True

    async def _let_go(self) -> None:
        self._deal = AssignmentState.UNKNOWN
        await self._stop_opening()
        joining, self._joining = self._joining, None
        if joining is not None and not joining.done():
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        member, self._member = self._member, None
        if member is not None:
            await stop_in_time(stop_consumer(member))
        self._books, self._ready, self._unnoted = MemberOffsets(), deque(), deque()


async def _get(member: AIOKafkaConsumer, count: int, within_s: float) -> Records:
    return cast("Records", await member.getmany(timeout_ms=int(within_s * 1000) + 1, max_records=count))


def _listen(member: AIOKafkaConsumer, for_ms: int) -> None:
    """From its next request on."""
    fetcher: Any = member._fetcher  # pyright: ignore[reportPrivateUsage] - it asks for this when it starts, and never again
    fetcher._fetch_max_wait_ms = for_ms


def _delivery(record: "ConsumerRecord[bytes, bytes]", handle: str, times: int) -> Delivery:
    return Delivery(
        key=(record.key or b"").decode(errors="replace"),
        value=record.value or b"",
        handle=handle,
        deliveries=times,
    )
