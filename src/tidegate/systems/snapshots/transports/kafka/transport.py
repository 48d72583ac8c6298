"""Kafka as the transport of refresh events, for installations that need more than one machine, or replay.

Connections are opened on first use, so a process starts and serves reads while Kafka is unavailable.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError

from tidegate.core.errors import InvalidArgument, ServerRefused
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka import topics
from tidegate.systems.snapshots.transports.kafka.clients import KafkaReader, Publisher
from tidegate.systems.snapshots.transports.kafka.connection import (
    LazyClient,
    client_options,
    retried,
    stop_consumer,
    stop_in_time,
    translated_errors,
)
from tidegate.systems.snapshots.transports.kafka.consumer import KafkaConsumer
from tidegate.systems.snapshots.transports.kafka.dead_letters import DeadMessages
from tidegate.systems.snapshots.transports.kafka.topics import DROPPED, TopicReport, topic_name
from tidegate.systems.snapshots.transports.protocol import GROUPS, DeadEntry, Message, RefreshTopic

if TYPE_CHECKING:
    from tidegate.primitives.stream import Stream


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
        specs = topics.topic_specs(self._settings)
        created = await retried(self._settings, "to create topics", lambda: topics.create_missing(admin, specs))
        await retried(self._settings, "to wait for topic leaders", lambda: topics.require_ready(admin, specs))
        return created

    async def topics(self) -> list[TopicReport]:
        """Return the state of all topics and their differences from the specification."""
        admin = await self._admin.get()
        specs = topics.topic_specs(self._settings)
        return await retried(self._settings, "to describe topics", lambda: topics.describe(admin, specs))

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
        return await retried(self._settings, "to describe a topic", lambda: topics.partitions_of(admin, name))

    async def _write_note(self, name: str, note: Message) -> None:
        await self._publisher.publish(name, [note])

    def _name(self, topic: RefreshTopic | str) -> str:
        return topic_name(self._settings, topic)

    def _group(self, topic: RefreshTopic, group: str) -> str:
        if GROUPS.get(topic) != group:
            raise InvalidArgument("group", group, f"{topic} is read by {GROUPS.get(topic, 'no group')}")
        return f"{self._settings.prefix}{group}"
