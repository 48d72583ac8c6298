"""Refresh events on Redis Streams: the default, which needs no server besides Valkey.

A topic is a stream with one group (see `tidegate.primitives.stream`). An event stays until it is acknowledged. It is
delivered again when its consumer leaves, or when the recoverer finds that its process died. Dead letters are in a
stream without consumers, which operators read.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count

from tidegate.core.arguments import require_at_most, require_positive
from tidegate.core.clock import Clock, SystemClock, to_ms
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.primitives.stream import Consumer as GroupMember
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.primitives.stream.message import require_id
from tidegate.storage.valkey import Key, Unit, Valkey
from tidegate.systems.snapshots.transports.protocol import GROUPS, TOPICS, DeadEntry, Delivery, Message, RefreshTopic

KEY_FIELD, VALUE_FIELD = "key", "value"
"""Fields of a stream entry."""
_KEY, _VALUE = KEY_FIELD.encode(), VALUE_FIELD.encode()
_UNLIMITED_DELIVERIES = 10**9
"""The stream never gives up an event: the worker counts deliveries and writes the dead letter."""
_IDLE_LIMIT = timedelta(hours=1)
"""Events can be in progress for long, while there is no permit or no database. Dead processes are found by lease."""
_LARGEST_PAGE = 1000

StreamEntry = tuple[bytes, dict[bytes, bytes]]


class StreamTransport:
    """See `Transport`."""

    def __init__(self, valkey: Valkey, unit: Unit, owner: str, *, clock: Clock | None = None) -> None:
        """`owner`: the name of this process in the membership; its events are reassigned when it dies."""
        self._valkey, self._owner = valkey, owner
        self._clock = clock or SystemClock()
        self._members = count(1)
        self._streams = {
            topic: Stream(valkey, unit, topic.value, _settings(topic), clock=self._clock) for topic in RefreshTopic
        }

    @property
    def recoverable(self) -> list[Stream]:
        """See `Transport`."""
        return [self._streams[topic] for topic in GROUPS]

    async def start(self) -> None:
        """See `Transport`: the connection is open already."""

    async def close(self) -> None:
        """See `Transport`: the connection belongs to the process."""

    async def create_topics(self) -> list[str]:
        """See `Transport`: a stream is created by its first message."""
        return []

    async def publish(self, topic: RefreshTopic, messages: Sequence[Message]) -> None:
        """See `Transport`."""
        await self._streams[topic].add([{_KEY: key.encode(), _VALUE: value} for key, value in messages])
        if topic is RefreshTopic.DEAD:
            await self._trim_dead_letters()

    def stream_of(self, topic: RefreshTopic) -> Key:
        """See `Transport`."""
        return self._streams[topic].keys.stream

    def consumer(self, topic: RefreshTopic, group: str) -> "StreamConsumer":
        """See `Transport`."""
        stream = self._group(topic, group)
        return StreamConsumer(stream.consumer(self._owner, str(next(self._members))))

    async def lag(self, topic: RefreshTopic, group: str) -> int:
        """See `Transport`."""
        return (await self._group(topic, group).status()).lag

    async def unfinished(self) -> int:
        """See `Transport`."""
        return sum([(await stream.status()).depth for stream in self.recoverable])

    async def dead_count(self) -> int:
        """See `Transport`."""
        return await self._valkey.execute("XLEN", self._dead_key)

    async def dead(self, *, after: str | None = None, limit: int = 50) -> list[DeadEntry]:
        """See `Transport`."""
        require_positive("limit", limit)
        require_at_most("limit", limit, _LARGEST_PAGE)
        start = "-" if after is None else f"({require_id('after', after)}"
        return [
            _dead(entry) for entry in await self._valkey.execute("XRANGE", self._dead_key, start, "+", "COUNT", limit)
        ]

    async def dead_one(self, entry_id: str) -> DeadEntry:
        """See `Transport`."""
        require_id("entry_id", entry_id)
        found = await self._valkey.execute("XRANGE", self._dead_key, entry_id, entry_id)
        if not found:
            raise NotFound("dead letter", entry_id)
        return _dead(found[0])

    async def drop(self, entry_id: str) -> bool:
        """See `Transport`."""
        return await self._valkey.execute("XDEL", self._dead_key, require_id("entry_id", entry_id)) == 1

    @property
    def _dead_key(self) -> str:
        return self._streams[RefreshTopic.DEAD].keys.stream

    async def _trim_dead_letters(self) -> None:
        oldest: datetime = self._clock.now() - TOPICS[RefreshTopic.DEAD].retention
        # `~` trims whole nodes only, which is cheap. A letter may stay somewhat longer than its retention.
        await self._valkey.execute("XTRIM", self._dead_key, "MINID", "~", to_ms(oldest))

    def _group(self, topic: RefreshTopic, group: str) -> Stream:
        stream = self._streams[topic]
        if GROUPS.get(topic) != group:
            raise InvalidArgument("group", group, f"{topic} is read by {GROUPS.get(topic, 'nobody')}")
        return stream


class StreamConsumer:
    """See `TransportConsumer`. A pause only stops reading; the lease of the process keeps its deliveries."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    async def read(self, count: int, within_s: float) -> list[Delivery]:
        """See `TransportConsumer`."""
        messages = await self._member.read(count, within_s)
        return [
            Delivery(
                key=each.fields.get(_KEY, b"").decode(errors="replace"),
                value=each.fields.get(_VALUE, b""),
                handle=each.id,
                deliveries=each.deliveries,
            )
            for each in messages
        ]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """See `TransportConsumer`."""
        await self._member.ack([each.handle for each in deliveries])

    async def held(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """See `TransportConsumer`."""
        held = await self._member.still_held([each.handle for each in deliveries])
        return [each for each in deliveries if each.handle in held]

    async def retry(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """See `TransportConsumer`."""
        await self._member.retry([each.handle for each in deliveries], reason)

    async def pause(self) -> None:
        """See `TransportConsumer`."""

    async def resume(self) -> None:
        """See `TransportConsumer`."""

    async def leave(self) -> None:
        """See `TransportConsumer`."""
        await self._member.leave()


def _settings(topic: RefreshTopic) -> StreamSettings:
    group = GROUPS.get(topic, "unread")
    return StreamSettings(group=group, max_deliveries=_UNLIMITED_DELIVERIES, idle_limit=_IDLE_LIMIT)


def _dead(entry: StreamEntry) -> DeadEntry:
    entry_id, fields = entry
    return DeadEntry(
        id=entry_id.decode(), key=fields.get(_KEY, b"").decode(errors="replace"), value=fields.get(_VALUE, b"")
    )
