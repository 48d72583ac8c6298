"""Dead letters on Kafka.

Kafka cannot delete a single message, so dropped ones are recorded in a second topic. Its records are ordered: the first
record about a message dropped it, and its writer gets True. Records are kept twice as long as the dead letters. The id
of a dead letter is `time-partition-offset`, in the order in which they are listed, the oldest first.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiokafka import TopicPartition

from tidegate.core.arguments import require_at_most, require_positive
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.ids import new_id
from tidegate.systems.snapshots.transports.kafka.connection import KafkaReader, Record, Span
from tidegate.systems.snapshots.transports.protocol import DeadEntry, Message

CacheKey = tuple[int, int, int]
"""Time in milliseconds, partition, offset."""
_LARGEST_PAGE = 1000


class DeadMessages:
    """The dead letters that were not dropped."""

    def __init__(
        self,
        reader: KafkaReader,
        *,
        topic: str,
        notes: str,
        partitions: Callable[[str], Awaitable[list[int]]],
        note: Callable[[str, Message], Awaitable[None]],
    ) -> None:
        """`notes`: topic of the records that `note` writes; `partitions`: returns the partitions of a topic."""
        self._reader, self._topic = reader, topic
        self._notes = TopicPartition(notes, 0)
        self._partitions, self._note = partitions, note
        self._dropped: dict[str, bytes] = {}
        self._read_up_to = 0
        self._reading = asyncio.Lock()

    async def count(self) -> int:
        """See `Transport.dead_count`."""
        spans = await self._spans()
        await self._read_notes()
        self._forget_expired(spans)
        return sum(end - begin for begin, end in spans.values()) - len(self._dropped)

    async def page(self, *, after: str | None, limit: int) -> list[DeadEntry]:
        """See `Transport.dead`."""
        require_positive("limit", limit)
        require_at_most("limit", limit, _LARGEST_PAGE)
        position: CacheKey = (-1, -1, -1) if after is None else _parse_id("after", after)
        spans = await self._spans()
        # Start each partition at the time in the id, instead of reading it from its beginning.
        if after is not None:
            starts = await self._reader.since(list(spans), position[0])
            spans = {each: (starts[each], end) for each, (_, end) in spans.items()}
        await self._read_notes()
        found = await self._reader.scan(
            spans, lambda each: _position_of(each) > position and not self._is_dropped(each), limit
        )
        return [_entry(each) for each in sorted(found, key=_position_of)[:limit]]

    async def get(self, entry_id: str) -> DeadEntry:
        """See `Transport.dead_one`."""
        at_ms, partition, offset = _parse_id("entry_id", entry_id)
        wanted = TopicPartition(self._topic, partition)
        begin, end = (await self._spans()).get(wanted, (0, 0))
        await self._read_notes()
        if begin <= offset < end:
            for record in await self._reader.scan({wanted: (offset, offset + 1)}, lambda _: True, 1):
                # The time is compared too: if the topic was created again, the offset has another message.
                if record.timestamp == at_ms and not self._is_dropped(record):
                    return _entry(record)
        raise NotFound("dead letter", entry_id)

    async def drop(self, entry_id: str) -> bool:
        """See `Transport.drop`."""
        _, partition, offset = _parse_id("entry_id", entry_id)
        try:
            await self.get(entry_id)
        except NotFound:
            return False
        # Two processes may drop the same letter. Both write a record; reading them back shows which was first.
        written = new_id().encode()
        await self._note(self._notes.topic, (_note_key(partition, offset), written))
        await self._read_notes()
        return self._dropped.get(_note_key(partition, offset)) == written

    async def _spans(self) -> dict[TopicPartition, Span]:
        numbers = await self._partitions(self._topic)
        return await self._reader.spans([TopicPartition(self._topic, each) for each in numbers])

    async def _read_notes(self) -> None:
        """Read new records of dropped messages. The first record about a message counts."""
        async with self._reading:
            begin, end = (await self._reader.spans([self._notes]))[self._notes]
            # Records are never changed, so only new ones are read.
            span = (max(begin, self._read_up_to), end)
            for record in await self._reader.scan({self._notes: span}, lambda _: True, end):
                self._dropped.setdefault((record.key or b"").decode(), record.value or b"")
            self._read_up_to = end

    def _is_dropped(self, record: Record) -> bool:
        return _note_key(record.partition, record.offset) in self._dropped

    def _forget_expired(self, spans: dict[TopicPartition, Span]) -> None:
        """Forget dropped messages that Kafka has deleted by retention."""
        begins = {each.partition: begin for each, (begin, _) in spans.items()}
        for key in list(self._dropped):
            partition, offset = map(int, key.split("-"))
            # Otherwise the count would subtract letters that Kafka no longer counts.
            if offset < begins.get(partition, 0):
                del self._dropped[key]


def _note_key(partition: int, offset: int) -> str:
    return f"{partition}-{offset}"


def _position_of(record: Record) -> CacheKey:
    return record.timestamp, record.partition, record.offset


def _parse_id(name: str, entry_id: str) -> CacheKey:
    parts = entry_id.split("-")
    if len(parts) != 3 or not all(each.isascii() and each.isdigit() and len(each) <= 18 for each in parts):
        raise InvalidArgument(name, entry_id[:64], "must be an entry's id, such as 1700000000000-3-17")
    at_ms, partition, offset = map(int, parts)
    return at_ms, partition, offset


def _entry(record: Record) -> DeadEntry:
    at_ms, partition, offset = _position_of(record)
    return DeadEntry(
        id=f"{at_ms}-{partition}-{offset}",
        key=(record.key or b"").decode(errors="replace"),
        value=record.value or b"",
    )
