"""Kafka as the transport of refresh events, for installations that need more than one machine, or replay.

The topics have a specification; differences are reported, and missing topics are created. Connections are opened on
first use, so a process starts and serves reads while Kafka is unavailable.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    CommitFailedError,
    KafkaError,
    LeaderNotAvailableError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from tidegate.core.clock import milliseconds
from tidegate.core.errors import InvalidArgument, ServerRefused
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka.connection import (
    KafkaReader,
    LazyClient,
    Publisher,
    client_options,
    retried,
    stop_consumer,
    stop_in_time,
    translated_errors,
)
from tidegate.systems.snapshots.transports.kafka.consumer import KafkaConsumer
from tidegate.systems.snapshots.transports.kafka.dead_letters import DeadMessages
from tidegate.systems.snapshots.transports.protocol import GROUPS, TOPICS, DeadEntry, Message, RefreshTopic

if TYPE_CHECKING:
    from tidegate.primitives.stream import Stream

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


async def group_lag(
    admin: AIOKafkaAdminClient, reader: KafkaReader, partitions: list[TopicPartition], group: str
) -> int:
    """Return how many messages the group has not committed, including those in progress."""
    spans = await reader.spans(partitions)
    committed = await admin.list_consumer_group_offsets(group, partitions=partitions)
    # A broker omits the partitions of a new topic, which have no commits.
    done = {each: committed[each].offset for each in spans if each in committed}
    return sum(end - max(begin, done.get(each, begin)) for each, (begin, end) in spans.items())


async def reset_group(settings: KafkaSettings, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit `offsets` for a group, so that it reads on from there.

    Raises `ServerRefused` while the group has members, since they would not notice it.
    """
    consumer = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **client_options(settings))
    try:
        async with translated_errors(settings, f"to reset {group}"):
            await consumer.start()
            consumer.assign(list(offsets))
            try:
                await consumer.commit(dict(offsets))
            except CommitFailedError:
                raise ServerRefused(
                    settings.address,
                    f"the group {group} has members",
                    remedy="Stop the workers first, and start them afterwards",
                ) from None
    finally:
        await stop_in_time(stop_consumer(consumer))


async def offsets_since(
    reader: KafkaReader, partitions: list[TopicPartition], since: datetime | Mapping[int, int]
) -> dict[TopicPartition, int]:
    """Return the offsets at a time, or check given offsets. Raises `InvalidArgument` for offsets outside the log."""
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise InvalidArgument("since", since, "must have a time zone")
        return await reader.since(partitions, int(since.timestamp() * 1000))
    spans = await reader.spans(partitions)
    by_number = {each.partition: each for each in partitions}
    for number, offset in since.items():
        begin, end = spans.get(by_number.get(number, TopicPartition("", number)), (0, -1))
        if not begin <= offset <= end:
            raise InvalidArgument("since", {number: offset}, "is not an offset of the topic")
    return {by_number[number]: offset for number, offset in since.items()}


class KafkaTransport:
    """See `Transport`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._publisher, self._reader = Publisher(settings), KafkaReader(settings)
        self._admin = LazyClient(
            settings, lambda: AIOKafkaAdminClient(**client_options(settings)), AIOKafkaAdminClient.close
        )
        # Weak references: a restarted worker takes a new consumer.
        self._consumers: WeakSet[KafkaConsumer] = WeakSet()
        self._dead = DeadMessages(
            self._reader,
            topic=self._name(RefreshTopic.DEAD),
            notes=self._name(DROPPED),
            partitions=self._partitions,
            note=self._write_note,
        )

    async def start(self) -> None:
        """See `Transport`: each client connects on first use."""

    async def close(self) -> None:
        """See `Transport`."""
        for consumer in list(self._consumers):
            # Leave first, while the other clients still work: a member that does not leave keeps its partitions until
            # the session timeout.
            await consumer.leave()
        await self._publisher.close()
        await self._reader.close()
        await self._admin.close()

    async def create_topics(self) -> list[str]:
        """See `Transport`. Existing topics are not changed; `topics` reports differences."""
        admin = await self._admin.get()
        specs = topic_specs(self._settings)
        created = await retried(self._settings, "to create topics", lambda: create_missing(admin, specs))
        await retried(self._settings, "to wait for topic leaders", lambda: require_ready(admin, specs))
        return created

    async def topics(self) -> list[TopicReport]:
        """Return the state of all topics and their differences from the specification."""
        admin = await self._admin.get()
        specs = topic_specs(self._settings)
        return await retried(self._settings, "to describe topics", lambda: describe(admin, specs))

    @property
    def recoverable(self) -> "Sequence[Stream]":
        """See `Transport`: Kafka reassigns the partitions of dead members itself."""
        return ()

    async def publish(self, topic: RefreshTopic, messages: Sequence[Message]) -> None:
        """See `Transport`."""
        await self._publisher.publish(self._name(topic), messages)

    def stream_of(self, topic: RefreshTopic) -> None:
        """See `Transport`: events are not on the Valkey server."""
        del topic

    def consumer(self, topic: RefreshTopic, group: str) -> KafkaConsumer:
        """See `Transport`."""
        consumer = KafkaConsumer(self._settings, self._name(topic), self._group(topic, group))
        self._consumers.add(consumer)
        return consumer

    async def lag(self, topic: RefreshTopic, group: str) -> int:
        """See `Transport`. Includes messages in progress, because Kafka knows only committed offsets."""
        name = self._group(topic, group)
        partitions = await self._all_of(topic)
        admin = await self._admin.get()
        return await retried(
            self._settings, "to read the lag", lambda: group_lag(admin, self._reader, partitions, name)
        )

    async def set_back(self, topic: RefreshTopic, group: str, since: datetime | Mapping[int, int]) -> dict[int, int]:
        """Replay: let the group read again from a time, or from offsets by partition; return the new offsets.

        Raises `ServerRefused` if its workers are running.
        """
        name = self._group(topic, group)
        # Offsets are checked before the group is changed.
        found = await offsets_since(self._reader, await self._all_of(topic), since)
        await reset_group(self._settings, name, found)
        return {each.partition: offset for each, offset in found.items()}

    async def unfinished(self) -> int:
        """See `Transport`."""
        return sum([await self.lag(*each) for each in GROUPS.items()])

    async def dead_count(self) -> int:
        """See `Transport`."""
        return await self._dead.count()

    async def dead(self, *, after: str | None = None, limit: int = 50) -> list[DeadEntry]:
        """See `Transport`."""
        return await self._dead.page(after=after, limit=limit)

    async def dead_one(self, entry_id: str) -> DeadEntry:
        """See `Transport`."""
        return await self._dead.get(entry_id)

    async def drop(self, entry_id: str) -> bool:
        """See `Transport`."""
        return await self._dead.drop(entry_id)

    async def _all_of(self, topic: RefreshTopic) -> list[TopicPartition]:
        name = self._name(topic)
        return [TopicPartition(name, each) for each in await self._partitions(name)]

    async def _partitions(self, name: str) -> list[int]:
        admin = await self._admin.get()
        return await retried(self._settings, "to describe a topic", lambda: partitions_of(admin, name))

    async def _write_note(self, name: str, note: Message) -> None:
        await self._publisher.publish(name, [note])

    def _name(self, topic: RefreshTopic | str) -> str:
        return topic_name(self._settings, topic)

    def _group(self, topic: RefreshTopic, group: str) -> str:
        if GROUPS.get(topic) != group:
            raise InvalidArgument("group", group, f"{topic} is read by {GROUPS.get(topic, 'no group')}")
        return f"{self._settings.prefix}{group}"
