"""Reading topics without being a member of a group: the dead, the notes about them, and where topics begin and end."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from tidegate.systems.snapshots.transport.kafka.connection import Lazy, client_options, speaking, stop_consumer
from tidegate.systems.snapshots.transport.kafka.settings import KafkaSettings

Span = tuple[int, int]
"""The first offset, and the one behind the last."""
Record = ConsumerRecord[bytes, bytes]
_FETCH_WAIT_MS = 100


class Reader:
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

        self._lazy = Lazy(settings, make, stop_consumer)

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
