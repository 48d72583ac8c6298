"""Topics of refresh events, and the guarantees of every transport; one test suite checks all transports.

- A message is safe when `publish` returns. It is delivered to one member of the topic's group at least once.
- An unacknowledged message is delivered again when its consumer leaves or its process dies.
- Messages can be acknowledged in any order. An unacknowledged message is delivered again, whatever was acknowledged
  after it.
- Two messages with the same key are delivered in the order of publication, unless one had to be delivered again.
- Errors of the server are `Unavailable`; the caller retries.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidegate.core.priority import Priority
from tidegate.storage.valkey import Key

if TYPE_CHECKING:
    from tidegate.primitives.stream import Stream


class RefreshTopic(StrEnum):
    """Names of the topics."""

    HIGH = "update-priority-high"
    LOW = "update-priority-low"
    DEAD = "update-dlq"


class TopicShape(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions and retention of a topic, for transports with topics that must be created."""

    partitions: int
    retention: timedelta
    """How long an unprocessed message is kept. Redis Streams keep events until they are acknowledged, and apply this
    only to dead letters."""


TOPICS: Mapping[RefreshTopic, TopicShape] = MappingProxyType(
    {
        RefreshTopic.HIGH: TopicShape(partitions=24, retention=timedelta(hours=24)),
        RefreshTopic.LOW: TopicShape(partitions=24, retention=timedelta(hours=72)),
        RefreshTopic.DEAD: TopicShape(partitions=12, retention=timedelta(days=7)),
    }
)
GROUPS: Mapping[RefreshTopic, str] = MappingProxyType(
    {RefreshTopic.HIGH: "high-worker", RefreshTopic.LOW: "low-worker"}
)
"""Consumer group of each topic. LOW has its own group, so that it never delays HIGH."""


def topic_for(priority: Priority) -> RefreshTopic:
    """Return the topic of a priority."""
    return RefreshTopic.HIGH if priority is Priority.HIGH else RefreshTopic.LOW


Message = tuple[str, bytes]
"""A key (`Subject.id`), and a value."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was delivered to a consumer and is not acknowledged."""

    key: str
    value: bytes
    handle: str
    """Identifies the delivery to its consumer. Unique among the unacknowledged deliveries of one consumer; a message
    that is delivered again may have the same or another handle."""
    deliveries: int = 1
    """Number of deliveries of this message that the transport knows of, including this one."""


class DeadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the topic `update-dlq`."""

    id: str
    """Letters, digits and hyphens."""
    key: str
    value: bytes


class TransportConsumer(Protocol):
    """One member of a topic's group. Only one `read` runs at a time; other methods may be called meanwhile."""

    async def read(self, count: int, within_s: float) -> list[Delivery]:
        """Return up to `count` messages as soon as there are any; none if there are none within `within_s` seconds.

        Blocks without polling. Cancelling it loses no message. Not called while paused.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages after their effects are committed. Idempotent."""
        ...

    async def held(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the deliveries that are still assigned to this consumer, as far as it knows."""
        ...

    async def retry(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Have messages delivered again soon, to any member."""
        ...

    async def pause(self) -> None:
        """Stop reading but stay a member; unacknowledged deliveries stay assigned. Idempotent."""
        ...

    async def resume(self) -> None:
        """Continue reading after a pause. Idempotent."""
        ...

    async def leave(self) -> None:
        """Give back unacknowledged deliveries without counting them, and leave the group. No `read` follows."""
        ...


class Transport(Protocol):
    """Access of one process to all topics."""

    @property
    def recoverable(self) -> "Sequence[Stream]":
        """Streams of messages that the leader reassigns after a crash; empty if the transport does that itself."""
        ...

    async def start(self) -> None:
        """Connect; called before publishing and reading."""
        ...

    async def close(self) -> None:
        """Close all connections. Consumers have left before."""
        ...

    async def create_topics(self) -> list[str]:
        """Create missing topics if the transport needs it; return their names."""
        ...

    async def publish(self, topic: RefreshTopic, messages: Sequence[Message]) -> None:
        """Publish messages; returns when all are safe. Raises `Unavailable` if some may be lost."""
        ...

    def stream_of(self, topic: RefreshTopic) -> Key | None:
        """Return the key of the topic's stream, to which a script can add events; None: use `publish`."""
        ...

    def consumer(self, topic: RefreshTopic, group: str) -> TransportConsumer:
        """Return a new member of the group of a topic (see `GROUPS`)."""
        ...

    async def lag(self, topic: RefreshTopic, group: str) -> int:
        """Return how many messages were published and not yet delivered to the group."""
        ...

    async def unfinished(self) -> int:
        """Return how many messages of both topics are not acknowledged, delivered or not."""
        ...

    async def dead_count(self) -> int:
        """Return the approximate number of dead letters."""
        ...

    async def dead(self, *, after: str | None = None, limit: int = 50) -> list[DeadEntry]:
        """Return up to `limit` dead letters after the id `after`, the oldest first, in a fixed order."""
        ...

    async def dead_one(self, entry_id: str) -> DeadEntry:
        """Return one dead letter; raises `NotFound`."""
        ...

    async def drop(self, entry_id: str) -> bool:
        """Delete a dead letter; False if there is none. Of concurrent callers, one gets True."""
        ...
