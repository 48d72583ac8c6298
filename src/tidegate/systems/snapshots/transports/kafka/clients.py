"""Kafka clients that are in no group: the producer, and a reader of any range of messages."""

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
    stop_consumer,
    translate,
    translated_errors,
)
from tidegate.systems.snapshots.transports.protocol import Message

_LAST_MOMENT_S = 2.0


class Publisher:
    """An idempotent producer with acks=all: a message is sent when all in-sync replicas have it."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

        def make() -> AIOKafkaProducer:
            return AIOKafkaProducer(
                acks="all", enable_idempotence=True, compression_type="zstd", **client_options(settings)
            )

        self._lazy = LazyClient(settings, make, _stop_producer)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """See `Transport.publish`. Messages with the same key go to one partition, in order.

        A message that was not confirmed in time may still arrive: the producer keeps trying, to preserve the order.
        """
        producer = await self._lazy.get()
        sent: list[asyncio.Future[object]] = []
        try:
            async with translated_errors(self._settings, "to publish"):
                try:
                    for key, value in messages:
                        # `send` only adds to a buffer. The futures end when the broker has confirmed.
                        sent.append(await producer.send(topic, value, key=key.encode()))
                    await asyncio.gather(*sent)
                except MessageSizeTooLargeError:
                    raise InvalidArgument(
                        "messages", len(messages), "one message is larger than the broker accepts"
                    ) from None
                except KafkaError as error:
                    if not error.retriable:
                        await self._lazy.close()  # the producer cannot send any more
                    raise translate(self._settings, "to publish", error) from None
        finally:
            for each in sent:
                # After an error the other futures are not awaited. Cancelled, they do not log
                # "exception was never retrieved".
                each.cancel()

    async def close(self) -> None:
        """Close the producer. Messages in flight have a moment to be sent."""
        await self._lazy.close()


async def _stop_producer(producer: AIOKafkaProducer) -> None:
    """Stop the producer. Its own `stop` would wait forever for unsent messages while the cluster is unavailable."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_MOMENT_S):
            await producer.flush()
    # Nothing can be sent any more. Unsent messages must fail, since `stop` waits for them.
    producer._message_accumulator.fail_all(KafkaError("closed"))  # pyright: ignore[reportPrivateUsage]
    try:
        # A request that is being retried also waits for the cluster, until it is cancelled twice.
        async with asyncio.timeout(_LAST_MOMENT_S / 2):
            await producer.stop()
    finally:
        await producer.client.close()


Span = tuple[int, int]
"""First offset, and the offset after the last."""
Record = ConsumerRecord[bytes, bytes]
_FETCH_WAIT_MS = 100


class KafkaReader:
    """Reads ranges of messages; concurrent calls run one after the other."""

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
        """Return the current range of each partition."""
        async with self._client("to read offsets") as consumer:
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
        return {each: (begins[each], ends[each]) for each in partitions}

    async def since(self, partitions: list[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
        """Return for each partition the offset of the first message at or after `at_ms`, or the end."""
        async with self._client("to find offsets by time") as consumer:
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, at_ms))
            ends = await consumer.end_offsets(partitions)
        return {each: ends[each] if (spot := found[each]) is None else spot.offset for each in partitions}

    async def scan(
        self, spans: Mapping[TopicPartition, Span], wanted: Callable[[Record], bool], most: int
    ) -> list[Record]:
        """Return up to `most` messages of each partition for which `wanted` holds, within the given range."""
        left = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        found: dict[TopicPartition, list[Record]] = {partition: [] for partition in left}
        async with self._client("to read") as consumer:
            # Assigned by hand, without a group: the reader commits nothing and does not take part in rebalances.
            consumer.assign(list(left))
            for partition, (begin, _) in left.items():
                consumer.seek(partition, begin)
            while left:
                for partition, records in (await consumer.getmany(timeout_ms=_FETCH_WAIT_MS)).items():
                    _, end = spans[partition]
                    some = cast("list[Record]", records)
                    found[partition] += [each for each in some if each.offset < end and wanted(each)]
                    # Offsets can have gaps, so the end is recognised by the last offset and not by a count.
                    if some[-1].offset + 1 >= end or len(found[partition]) >= most:
                        left.pop(partition, None)
                        # Stop fetching this partition, while the others are still read.
                        consumer.pause(partition)
        return [each for records in found.values() for each in records[:most]]

    async def close(self) -> None:
        """Close the connection, if open."""
        await self._lazy.close()

    @asynccontextmanager
    async def _client(self, what: str) -> AsyncGenerator[AIOKafkaConsumer]:
        async with self._one:
            consumer = await self._lazy.get()
            async with translated_errors(self._settings, what):
                yield consumer
