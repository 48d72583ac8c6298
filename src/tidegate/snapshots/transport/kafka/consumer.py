"""One member of a group on Kafka.

What came and is not done is noted in `Books`; only what is done without a gap is committed, after the database. What is
given back waits here, and comes again from here: it was not committed, so it comes from Kafka if this process dies.
When members come and go, Kafka deals the partitions anew. What we held of one that went to another is no longer ours:
the other is given it, and we commit nothing of it.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from tidegate.kernel.arguments import require_not_negative, require_positive
from tidegate.kernel.clock import milliseconds
from tidegate.kernel.errors import Unavailable
from tidegate.snapshots.transport.kafka.books import Books
from tidegate.snapshots.transport.kafka.connection import (
    client_options,
    in_our_words,
    speaking,
    stop_consumer,
    stop_in_time,
)
from tidegate.snapshots.transport.kafka.settings import KafkaSettings
from tidegate.snapshots.transport.protocol import Delivery
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

_LISTEN_MS = 100
"""How long a broker holds an empty answer back. A partition whose messages were just taken is asked for again only with
the next request, so this is also by how much a message may come late."""
_A_DAY_MS = 86_400_000
"""A member that reads nothing stays one: it may be paused for hours. That a process died is seen by its heartbeat."""
_REBALANCE_MS = 30_000
"""How long members have to come back when partitions are dealt anew. Joining takes so long at worst, and no longer."""

Records = Mapping[TopicPartition, Sequence[ConsumerRecord[bytes, bytes]]]


class KafkaConsumer(ConsumerRebalanceListener):
    """See `Consumer`. Joins its group with the first `read`."""

    def __init__(self, settings: KafkaSettings, topic: str, group: str) -> None:
        self._settings, self._topic, self._group = settings, topic, group
        self._within_s = settings.answer_within.total_seconds()
        self._member: AIOKafkaConsumer | None = None
        self._joining: asyncio.Task[None] | None = None
        self._books = Books()
        self._ready: deque[Delivery] = deque()
        self._paused = False
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
            if self._ready and not self._paused:
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

    async def retry(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """See `Consumer`."""
        del reason  # Kafka has no place for it
        ours = [each for each in deliveries if self._books.holds(each.handle)]
        self._ready.extend(msgspec.structs.replace(each, deliveries=each.deliveries + 1) for each in ours)
        self._stirred.set()

    async def pause(self) -> None:
        """See `Consumer`."""
        self._paused = True
        if self._member is not None:
            self._member.pause(*self._member.assignment())

    async def resume(self) -> None:
        """See `Consumer`."""
        self._paused = False
        if self._member is not None:
            self._member.resume(*self._member.paused())
        self._stirred.set()

    async def leave(self) -> None:
        """See `Consumer`."""
        with suppress(Unavailable):
            await self._commit()
        await self._let_go()

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride] - it may be a coroutine
        self, revoked: Iterable[TopicPartition]
    ) -> None:
        """Called by the driver before the partitions are dealt anew: the last chance to say what is done."""
        del revoked
        with suppress(Unavailable):
            await self._commit()

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride] - it may be a coroutine
        self, assigned: Iterable[TopicPartition]
    ) -> None:
        """Called by the driver when it is known which partitions are ours."""
        assert self._member is not None
        ours = list(assigned)
        if self._paused:
            self._member.pause(*ours)
        self._books.keep_only({each.partition for each in ours})
        with suppress(KafkaError):
            for partition in self._books.partitions:
                committed = await self._member.committed(TopicPartition(self._topic, partition))
                self._books.skip_to(partition, committed or 0)
        self._ready = deque(each for each in self._ready if self._books.holds(each.handle))
        with suppress(Unavailable):
            await self._commit()
        log.debug("kafka.assigned", topic=self._topic, group=self._group, partitions=len(ours))

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
            found = cast("Records", await member.getmany(timeout_ms=int(within_s * 1000) + 1, max_records=count))
        except KafkaError as error:
            # The driver tries again by itself where that helps. Here it does not: join anew.
            await self._let_go()
            raise in_our_words("to read", error) from None
        for partition, records in found.items():
            for record in records:
                if handle := self._books.take(partition.partition, record.offset):
                    self._ready.append(_delivery(record, handle))

    async def _joined(self) -> AIOKafkaConsumer:
        # A task of its own, since a read that gives up must not end it half way.
        if self._joining is None:
            self._joining = asyncio.create_task(self._join())
        joining = self._joining
        try:
            await asyncio.shield(joining)
        except (KafkaError, OSError) as error:
            raise in_our_words("to join", error) from None
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

    async def _commit(self) -> None:
        """Tell Kafka what is done without a gap; one at a time, each with all that is news by then."""
        async with self._committing:
            offsets = self._books.to_commit()
            if self._member is None or not offsets:
                return
            by_partition = {TopicPartition(self._topic, number): offset for number, offset in offsets.items()}
            async with speaking("to commit", self._within_s):
                try:
                    await self._member.commit(by_partition)
                except (CommitFailedError, IllegalStateError):
                    # The partitions are being dealt anew. What is still ours afterwards is committed then.
                    log.debug("kafka.commit_deferred", topic=self._topic, group=self._group)
                    return
            self._books.note_committed(offsets)

    async def _let_go(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None and not joining.done():
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        member, self._member = self._member, None
        if member is not None:
            await stop_in_time(stop_consumer(member))
        self._books, self._ready = Books(), deque()


def _delivery(record: "ConsumerRecord[bytes, bytes]", handle: str) -> Delivery:
    return Delivery(
        key=(record.key or b"").decode(errors="replace"),
        value=record.value or b"",
        handle=handle,
    )
