"""The topics: what they are called, how they are shaped, and who reads them."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType

import msgspec

from tidegate.core.priority import Priority


class Topic(StrEnum):
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


TOPICS: Mapping[Topic, TopicShape] = MappingProxyType(
    {
        Topic.HIGH: TopicShape(partitions=24, retention=timedelta(hours=24)),
        Topic.LOW: TopicShape(partitions=24, retention=timedelta(hours=72)),
        Topic.DEAD: TopicShape(partitions=12, retention=timedelta(days=7)),
    }
)
GROUPS: Mapping[Topic, str] = MappingProxyType({Topic.HIGH: "high-worker", Topic.LOW: "low-worker"})
"""Who reads a topic. LOW has a group of its own, so that it never delays HIGH."""


def topic_for(priority: Priority) -> Topic:
    """Where events of this priority go."""
    return Topic.HIGH if priority is Priority.HIGH else Topic.LOW
