"""What every transport promises; one suite of tests holds all of them to it (tests/systems/snapshots/transports).

- What `publish` returned from is safe, and is delivered to one member of the topic's group, at least once.
- A delivery that is neither acknowledged nor given back comes again, when its consumer leaves or its process died.
- Acknowledgements come in any order. What was not acknowledged comes again, whatever was acknowledged after it.
- Two messages of one key are delivered in the order in which they were published, unless one had to come again.
- Errors of the server behind it are `Unavailable`; the caller tries again.

The topics: what they are called, how they are shaped, and who reads them.
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
    """Where messages go."""

    HIGH = "update-priority-high"
    LOW = "update-priority-low"
    DEAD = "update-dlq"


class TopicShape(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic is made, where topics have to be made."""

    partitions: int
    retention: timedelta
    """How long what nobody handled is kept. Redis Streams keep an event until it is done, and only the dead for so
    long."""


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
"""Who reads a topic. LOW has a group of its own, so that it never delays HIGH."""


def topic_for(priority: Priority) -> RefreshTopic:
    """Where events of this priority go."""
    return RefreshTopic.HIGH if priority is Priority.HIGH else RefreshTopic.LOW


Message = tuple[str, bytes]
"""A key (`Subject.id`), and a value."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the hand of one consumer."""

    key: str
    value: bytes
    handle: str
    """Names this delivery to its consumer, and means nothing to others. A message that comes again has another, or the
    same; within one consumer no two that are in hand have the same."""
    deliveries: int = 1
    """The how-maniest delivery this is, as far as the transport knows; at least 1."""


class DeadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A message of `RefreshTopic.DEAD`."""

    id: str
    """Letters, digits and hyphens."""
    key: str
    value: bytes


class TransportConsumer(Protocol):
    """One member of a topic's group. One `read` is under way at a time; everything else may be called meanwhile."""

    async def read(self, count: int, within_s: float) -> list[Delivery]:
        """At most `count` as soon as there are some; none when `within_s` seconds passed without any.

        Blocks, and does not look at intervals. Cancelling loses nothing. Not called while paused.
        """
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These are done, and what they led to is safe. Repeating it changes nothing."""
        ...

    async def held(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Those of these that are still ours, as far as is known: others were given to another consumer."""
        ...

    async def retry(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """Have these delivered again, soon, to whomever it may be."""
        ...

    async def pause(self) -> None:
        """Nothing is read for a while: what is in hand stays in hand, and we stay a member. Repeating is fine."""
        ...

    async def resume(self) -> None:
        """Go on reading. Repeating is fine."""
        ...

    async def leave(self) -> None:
        """Give back what is in hand, uncounted, and leave the group. No `read` is under way, and none follows."""
        ...


class Transport(Protocol):
    """One process's hold on all topics."""

    @property
    def recoverable(self) -> "Sequence[Stream]":
        """The streams from which the leader has to take what dead processes held; none where the transport does it."""
        ...

    async def start(self) -> None:
        """Connect. Publishing and reading come after it."""
        ...

    async def close(self) -> None:
        """Let go of everything. Consumers have left before."""
        ...

    async def create_topics(self) -> list[str]:
        """Make the topics that are missing, where topics have to be made; their names."""
        ...

    async def publish(self, topic: RefreshTopic, messages: Sequence[Message]) -> None:
        """Returns when all are safely there; raises `Unavailable` when some may not be."""
        ...

    def stream_of(self, topic: RefreshTopic) -> Key | None:
        """The stream of the topic on the Valkey server, where events can be added by a script; None: use `publish`."""
        ...

    def consumer(self, topic: RefreshTopic, group: str) -> TransportConsumer:
        """A new member of the group that reads a topic (see `GROUPS`)."""
        ...

    async def lag(self, topic: RefreshTopic, group: str) -> int:
        """How many messages wait for the group: published, and delivered to nobody yet."""
        ...

    async def unfinished(self) -> int:
        """How many messages of both topics are not acknowledged: those that wait, and those in hand."""
        ...

    async def dead_count(self) -> int:
        """How many dead messages there are, about."""
        ...

    async def dead(self, *, after: str | None = None, limit: int = 50) -> list[DeadEntry]:
        """The oldest `limit` dead messages behind the entry `after`, or of all, in a fixed order."""
        ...

    async def dead_one(self, entry_id: str) -> DeadEntry:
        """One of them; raises `NotFound`."""
        ...

    async def drop(self, entry_id: str) -> bool:
        """Take a dead message out of the list for good; False when it was not there. One caller is told True."""
        ...
