"""Our topics on Kafka: how they should be, how they are, and making those that are missing."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from tidegate.core.clock import milliseconds
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.protocol import TOPICS, RefreshTopic

HANDLED = "update-dlq-handled"
"""Notes of the dead messages that somebody dropped, since Kafka cannot take one message out (see `dead.py`)."""
_SEGMENTS = 4
"""Kafka forgets whole segments, so a message stays up to one segment's time longer than it must."""


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic should be."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


class TopicReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic is."""

    name: str
    partitions: int
    """0: there is no such topic."""
    replication: int = 0
    differences: tuple[str, ...] = ()
    """What is not as it should be, in words."""

    @property
    def exists(self) -> bool:
        """Whether there is such a topic."""
        return self.partitions > 0


def topic_name(settings: KafkaSettings, topic: RefreshTopic | str) -> str:
    """The name of a topic on this cluster."""
    return f"{settings.prefix}{topic}"


def wanted_topics(settings: KafkaSettings) -> list[TopicSpec]:
    """All topics of ours, as they should be."""
    dead = TOPICS[RefreshTopic.DEAD].retention
    ours = [
        _wanted(settings, topic, shape.partitions, shape.retention, by_broker=topic is RefreshTopic.DEAD)
        for topic, shape in TOPICS.items()
    ]
    # One partition, so that there is an order between all notes; they outlive what they speak of.
    return [*ours, _wanted(settings, HANDLED, 1, 2 * dead, by_broker=True)]


async def create_missing(admin: AIOKafkaAdminClient, wanted: Sequence[TopicSpec]) -> list[str]:
    """Make the topics that are not there; the names of those that we made."""
    made: list[str] = []
    reply: Any = await admin.create_topics(
        [NewTopic(each.name, each.partitions, each.replication, topic_configs=dict(each.config)) for each in wanted]
    )
    for name, code, *_ in reply.topic_errors:
        error: type[KafkaError] = for_code(code)
        if code == 0:
            made.append(name)
        elif error is not TopicAlreadyExistsError:
            raise error(name)
    return made


async def require_ready(admin: AIOKafkaAdminClient, wanted: Sequence[TopicSpec]) -> None:
    """Raises an error that says to try again until every partition has a leader, and so takes messages."""
    for described in await admin.describe_topics([each.name for each in wanted]):
        leaders = [each["leader"] for each in described["partitions"]]
        if described["error_code"] != 0 or not leaders or min(leaders) < 0:
            raise LeaderNotAvailableError(described["topic"])


async def look_at(admin: AIOKafkaAdminClient, wanted: Sequence[TopicSpec]) -> list[TopicReport]:
    """How they are, in the same order."""
    described = await admin.describe_topics([each.name for each in wanted])
    found = {each["topic"]: each for each in described if each["error_code"] == 0}
    configs = await _configs(admin, [each for each in wanted if each.name in found])
    return [_report(each, found.get(each.name), configs.get(each.name, {})) for each in wanted]


async def partitions_of(admin: AIOKafkaAdminClient, name: str) -> list[int]:
    """The numbers of a topic's partitions."""
    [described] = await admin.describe_topics([name])
    if described["error_code"] != 0:
        error: type[KafkaError] = for_code(described["error_code"])
        raise error(name)
    if not described["partitions"]:
        raise UnknownTopicOrPartitionError(name)
    return sorted(each["partition"] for each in described["partitions"])


def _wanted(
    settings: KafkaSettings, topic: RefreshTopic | str, partitions: int, retention: timedelta, *, by_broker: bool
) -> TopicSpec:
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(milliseconds(retention)),
        "segment.ms": str(milliseconds(retention / _SEGMENTS)),
        # With three copies, a message is safe when two have it: one broker may be away.
        "min.insync.replicas": str(max(1, settings.replication - 1)),
        # The dead are listed by time: by the broker's, so that it does not go back within a partition.
        "message.timestamp.type": "LogAppendTime" if by_broker else "CreateTime",
    }
    name = topic_name(settings, topic)
    return TopicSpec(name=name, partitions=partitions, replication=settings.replication, config=config)


async def _configs(admin: AIOKafkaAdminClient, wanted: Sequence[TopicSpec]) -> dict[str, dict[str, str]]:
    if not wanted:
        return {}
    asked = [ConfigResource(ConfigResourceType.TOPIC, each.name, dict(each.config)) for each in wanted]
    replies: list[Any] = list(await admin.describe_configs(asked))
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for reply in replies
        for _code, _message, _kind, name, entries, *_ in reply.resources
    }


def _report(wanted: TopicSpec, found: Mapping[str, Any] | None, config: Mapping[str, str]) -> TopicReport:
    if found is None:
        return TopicReport(name=wanted.name, partitions=0, differences=("missing",))
    partitions = len(found["partitions"])
    replication = min(len(each["replicas"]) for each in found["partitions"])
    pairs = [
        ("partitions", str(partitions), str(wanted.partitions)),
        ("replication", str(replication), str(wanted.replication)),
        *((key, config.get(key, "unknown"), value) for key, value in wanted.config.items()),
    ]
    differences = tuple(f"{what} is {real}, should be {should}" for what, real, should in pairs if real != should)
    return TopicReport(name=wanted.name, partitions=partitions, replication=replication, differences=differences)
