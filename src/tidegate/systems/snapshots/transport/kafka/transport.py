"""Events on Kafka: for those who have outgrown one machine, or want to replay.

Nothing is connected before it is needed, so a process comes up and serves reads while Kafka is away.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tidegate.core.errors import InvalidArgument
from tidegate.systems.snapshots.transport.kafka import offsets, topics
from tidegate.systems.snapshots.transport.kafka.connection import Lazy, client_options, insist
from tidegate.systems.snapshots.transport.kafka.consumer import KafkaConsumer
from tidegate.systems.snapshots.transport.kafka.dead import DeadMessages
from tidegate.systems.snapshots.transport.kafka.publishing import Publisher
from tidegate.systems.snapshots.transport.kafka.reading import Reader
from tidegate.systems.snapshots.transport.kafka.settings import KafkaSettings
from tidegate.systems.snapshots.transport.kafka.topics import HANDLED, TopicReport, topic_name
from tidegate.systems.snapshots.transport.protocol import DeadEntry, Message
from tidegate.systems.snapshots.transport.topics import GROUPS, Topic

if TYPE_CHECKING:
    from tidegate.primitives.stream import Stream


class KafkaTransport:
    """See `Transport`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._publisher, self._reader = Publisher(settings), Reader(settings)
        self._admin = Lazy(settings, lambda: AIOKafkaAdminClient(**client_options(settings)), AIOKafkaAdminClient.close)
        # Only those that somebody still uses: a worker that is started again takes a new one.
        self._consumers: WeakSet[KafkaConsumer] = WeakSet()
        self._dead = DeadMessages(
            self._reader,
            topic=self._name(Topic.DEAD),
            notes=self._name(HANDLED),
            partitions=self._partitions,
            note=self._write_note,
        )

    async def start(self) -> None:
        """Nothing to do: each part connects when it is needed."""

    async def close(self) -> None:
        """See `Transport`."""
        for consumer in list(self._consumers):
            await consumer.leave()
        await self._publisher.close()
        await self._reader.close()
        await self._admin.close()

    async def create_topics(self) -> list[str]:
        """See `Transport`. What is there stays as it is: see `topics` for what differs."""
        admin = await self._admin.get()
        wanted = topics.wanted_topics(self._settings)
        made = await insist(self._settings, "to create topics", lambda: topics.create_missing(admin, wanted))
        await insist(self._settings, "to have topics led", lambda: topics.require_ready(admin, wanted))
        return made

    async def topics(self) -> list[TopicReport]:
        """How our topics are, and what is not as it should be."""
        admin = await self._admin.get()
        wanted = topics.wanted_topics(self._settings)
        return await insist(self._settings, "to look at topics", lambda: topics.look_at(admin, wanted))

    @property
    def recoverable(self) -> "Sequence[Stream]":
        """See `Transport`: Kafka notices by itself when a member died."""
        return ()

    async def publish(self, topic: Topic, messages: Sequence[Message]) -> None:
        """See `Transport`."""
        await self._publisher.publish(self._name(topic), messages)

    def stream_of(self, topic: Topic) -> None:
        """See `Transport`: events are not on the Valkey server."""
        del topic

    def consumer(self, topic: Topic, group: str) -> KafkaConsumer:
        """See `Transport`."""
        consumer = KafkaConsumer(self._settings, self._name(topic), self._group(topic, group))
        self._consumers.add(consumer)
        return consumer

    async def lag(self, topic: Topic, group: str) -> int:
        """See `Transport`. What is in hand counts too: Kafka knows only what was committed."""
        name = self._group(topic, group)
        partitions = await self._all_of(topic)
        admin = await self._admin.get()
        return await insist(
            self._settings, "how much waits", lambda: offsets.lag(admin, self._reader, partitions, name)
        )

    async def set_back(self, topic: Topic, group: str, since: datetime | Mapping[int, int]) -> dict[int, int]:
        """Replay: have the group read again what came since a time, or from offsets by partition.

        Where each partition goes on. Its workers must be stopped meanwhile: raises `ServerRefused` when they are not.
        """
        name = self._group(topic, group)
        found = await offsets.places(self._reader, await self._all_of(topic), since)
        await offsets.set_back(self._settings, name, found)
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

    async def _all_of(self, topic: Topic) -> list[TopicPartition]:
        name = self._name(topic)
        return [TopicPartition(name, each) for each in await self._partitions(name)]

    async def _partitions(self, name: str) -> list[int]:
        admin = await self._admin.get()
        return await insist(self._settings, "to look at a topic", lambda: topics.partitions_of(admin, name))

    async def _write_note(self, name: str, note: Message) -> None:
        await self._publisher.publish(name, [note])

    def _name(self, topic: Topic | str) -> str:
        return topic_name(self._settings, topic)

    def _group(self, topic: Topic, group: str) -> str:
        if GROUPS.get(topic) != group:
            raise InvalidArgument("group", group, f"{topic} is read by {GROUPS.get(topic, 'nobody')}")
        return f"{self._settings.prefix}{group}"
