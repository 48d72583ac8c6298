"""The topics on Kafka: their specification, a report of differences, and creation of missing ones."""

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

DROPPED = "update-dlq-handled"
"""Topic of the records of dropped dead letters; see `dead_letters`."""
_SEGMENTS = 4
"""Segments per retention time. Kafka deletes whole segments, so a message can stay one segment longer."""


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of a topic."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


class TopicReport(msgspec.Struct, frozen=True, kw_only=True):
    """State of a topic, and how it differs from its specification."""

    name: str
    partitions: int
    """0: the topic does not exist."""
    replication: int = 0
    differences: tuple[str, ...] = ()
    """Differences from the specification."""

    @property
    def exists(self) -> bool:
        """Whether the topic exists."""
        return self.partitions > 0


def topic_name(settings: KafkaSettings, topic: RefreshTopic | str) -> str:
    """Return the name of a topic on this cluster."""
    return f"{settings.prefix}{topic}"


def topic_specs(settings: KafkaSettings) -> list[TopicSpec]:
    """Return the specifications of all topics."""
    dead = TOPICS[RefreshTopic.DEAD].retention
    ours = [
        _spec(settings, topic, shape.partitions, shape.retention, by_broker=topic is RefreshTopic.DEAD)
        for topic, shape in TOPICS.items()
    ]
    # One partition, so that all records are ordered. They are kept longer than the dead letters they describe.
    return [*ours, _spec(settings, DROPPED, 1, 2 * dead, by_broker=True)]


async def create_missing(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> list[str]:
    """Create missing topics; return their names."""
    created: list[str] = []
    reply: Any = await admin.create_topics(
        [NewTopic(each.name, each.partitions, each.replication, topic_configs=dict(each.config)) for each in specs]
    )
    for name, code, *_ in reply.topic_errors:
        error: type[KafkaError] = for_code(code)
        if code == 0:
            created.append(name)
        # Two processes may create topics at the same time; one of them finds them existing.
        elif error is not TopicAlreadyExistsError:
            raise error(name)
    return created


async def require_ready(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> None:
    """Raise a retriable error until every partition has a leader and so accepts messages."""
    for described in await admin.describe_topics([each.name for each in specs]):
        leaders = [each["leader"] for each in described["partitions"]]
        if described["error_code"] != 0 or not leaders or min(leaders) < 0:
            raise LeaderNotAvailableError(described["topic"])


async def describe(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> list[TopicReport]:
    """Return the state of topics, in the same order."""
    described = await admin.describe_topics([each.name for each in specs])
    found = {each["topic"]: each for each in described if each["error_code"] == 0}
    configs = await _configs(admin, [each for each in specs if each.name in found])
    return [_report(each, found.get(each.name), configs.get(each.name, {})) for each in specs]


async def partitions_of(admin: AIOKafkaAdminClient, name: str) -> list[int]:
    """Return the partition numbers of a topic."""
    [described] = await admin.describe_topics([name])
    if described["error_code"] != 0:
        error: type[KafkaError] = for_code(described["error_code"])
        raise error(name)
    if not described["partitions"]:
        raise UnknownTopicOrPartitionError(name)
    return sorted(each["partition"] for each in described["partitions"])


def _spec(
    settings: KafkaSettings, topic: RefreshTopic | str, partitions: int, retention: timedelta, *, by_broker: bool
) -> TopicSpec:
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(milliseconds(retention)),
        "segment.ms": str(milliseconds(retention / _SEGMENTS)),
        # With three replicas, a message is safe on two: one broker may be unavailable.
        "min.insync.replicas": str(max(1, settings.replication - 1)),
        # Dead letters are listed by time: by that of the broker, so that it does not decrease in a partition.
        "message.timestamp.type": "LogAppendTime" if by_broker else "CreateTime",
    }
    name = topic_name(settings, topic)
    return TopicSpec(name=name, partitions=partitions, replication=settings.replication, config=config)


async def _configs(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> dict[str, dict[str, str]]:
    if not specs:
        return {}
    asked = [ConfigResource(ConfigResourceType.TOPIC, each.name, dict(each.config)) for each in specs]
    replies: list[Any] = list(await admin.describe_configs(asked))
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for reply in replies
        for _code, _message, _kind, name, entries, *_ in reply.resources
    }


def _report(specs: TopicSpec, found: Mapping[str, Any] | None, config: Mapping[str, str]) -> TopicReport:
    if found is None:
        return TopicReport(name=specs.name, partitions=0, differences=("missing",))
    partitions = len(found["partitions"])
    replication = min(len(each["replicas"]) for each in found["partitions"])
    pairs = [
        ("partitions", str(partitions), str(specs.partitions)),
        ("replication", str(replication), str(specs.replication)),
        *((key, config.get(key, "unknown"), value) for key, value in specs.config.items()),
    ]
    differences = tuple(f"{what} is {real}, should be {should}" for what, real, should in pairs if real != should)
    return TopicReport(name=specs.name, partitions=partitions, replication=replication, differences=differences)
