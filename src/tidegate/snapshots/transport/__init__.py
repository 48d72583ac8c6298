"""How events travel from those who want a refresh to those who do it: one interface, several ways."""

from tidegate.snapshots.transport.protocol import Consumer, DeadEntry, Delivery, Transport
from tidegate.snapshots.transport.topics import GROUPS, TOPICS, Topic, TopicShape, topic_for

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
