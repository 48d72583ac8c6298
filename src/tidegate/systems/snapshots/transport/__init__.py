"""How events travel from those who want a refresh to those who do it: one interface, several ways."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.snapshots.transport.protocol import Consumer, DeadEntry, Delivery, Transport
    from tidegate.systems.snapshots.transport.topics import GROUPS, TOPICS, Topic, TopicShape, topic_for

__all__ = [
    "GROUPS",
    "TOPICS",
    "Consumer",
    "DeadEntry",
    "Delivery",
    "Topic",
    "TopicShape",
    "Transport",
    "topic_for",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.snapshots.transport.protocol": "Consumer DeadEntry Delivery Transport",
        "tidegate.systems.snapshots.transport.topics": "GROUPS TOPICS Topic TopicShape topic_for",
    },
)
