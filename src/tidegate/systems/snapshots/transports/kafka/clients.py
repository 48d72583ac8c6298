"""Reading topics without being a member of a group: the dead, the notes about them, and where topics begin and end.

Putting messages on topics, so that they are safe when `publish` returns.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from tidegate.core.errors import InvalidArgument
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka.connection import (
    LazyClient,
    client_options,
    in_our_words,
    speaking,
    stop_consumer,
)
from tidegate.systems.snapshots.transports.protocol import Message

_LAST_MOMENT_S = 2.0


class Publisher:
    """One producer. All replicas in sync have a message before it counts as sent, and a repeated request adds none."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

        def make() -> AIOKafkaProducer:
            return AIOKafkaProducer(
                acks="all", enable_idempotence=True, compression_type="zstd", **client_options(settings)
            )

        self._lazy = LazyClient(settings, make, _stop_producer)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """See `Transport.publish`. A key's messages go to one partition, in their order.

        What was not confirmed in time may still arrive: the producer goes on trying, so that the order is kept.
        """
        producer = await self._lazy.get()
        sent: list[asyncio.Future[object]] = []
        try:
            async with speaking(self._settings, "to publish"):
                try:
                    for key, value in messages:
                        sent.append(await producer.send(topic, value, key=key.encode()))
                    await asyncio.gather(*sent)
                except MessageSizeTooLargeError:
                    raise InvalidArgument("messages", len(messages), "one is larger than Kafka takes") from None
                except KafkaError as error:
                    if not error.retriable:
                        await self._lazy.close()  # such a producer sends nothing any more
                    raise in_our_words(self._settings, "to publish", error) from None
        finally:
            for each in sent:
                each.cancel()

    async def close(self) -> None:
        """Let go of the connection. What is on its way has a moment to arrive."""
        await self._lazy.close()


async def _stop_producer(producer: AIOKafkaProducer) -> None:
    """Stopping waits until everything was sent: for ever, if the cluster is away. We give it a moment, and then up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_MOMENT_S):
            await producer.flush()
    producer._message_accumulator.fail_all(KafkaError("closed"))  # pyright: ignore[reportPrivateUsage]
    try:
        # A request that is being tried again waits for a cluster too, until it is told twice.
        async with asyncio.timeout(_LAST_MOMENT_S / 2):
            await producer.stop()
    finally:
        await producer.client.close()


Span = tuple[int, int]
"""The first offset, and the one behind the last."""
Record = ConsumerRecord[bytes, bytes]
_FETCH_WAIT_MS = 100


class KafkaReader:
    """One connection, used by one at a time."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._one = asyncio.Lock()

        def make() -> AIOKafkaConsumer:
            return AIOKafkaConsumer(
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=_FETCH_WAIT_MS,
                **client_options(settings),
            )

        self._lazy = LazyClient(settings, make, stop_consumer)

    async def spans(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Span]:
        """Where each begins and ends now."""
        async with self._asking("where topics begin and end") as consumer:
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
        return {each: (begins[each], ends[each]) for each in partitions}

    async def since(self, partitions: list[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
        """The first message of this time or later in each; where there is none, where the next one will be."""
        async with self._asking("for messages of a time") as consumer:
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, at_ms))
            ends = await consumer.end_offsets(partitions)
        return {each: ends[each] if (spot := found[each]) is None else spot.offset for each in partitions}

    async def scan(
        self, spans: Mapping[TopicPartition, Span], wanted: Callable[[Record], bool], most: int
    ) -> list[Record]:
        """The first `most` wanted messages of each partition within its span."""
        left = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        found: dict[TopicPartition, list[Record]] = {partition: [] for partition in left}
        async with self._asking("to read") as consumer:
            consumer.assign(list(left))
            for partition, (begin, _) in left.items():
                consumer.seek(partition, begin)
            while left:
                for partition, records in (await consumer.getmany(timeout_ms=_FETCH_WAIT_MS)).items():
                    _, end = spans[partition]
                    some = cast("list[Record]", records)
                    found[partition] += [each for each in some if each.offset < end and wanted(each)]
                    if some[-1].offset + 1 >= end or len(found[partition]) >= most:
                        left.pop(partition, None)
                        consumer.pause(partition)
        return [each for records in found.values() for each in records[:most]]

    async def close(self) -> None:
        """Let go of the connection."""
        await self._lazy.close()

    @asynccontextmanager
    async def _asking(self, what: str) -> AsyncGenerator[AIOKafkaConsumer]:
        async with self._one:
            consumer = await self._lazy.get()
            async with speaking(self._settings, what):
                yield consumer
