"""Where a group stands on a topic: how much waits for it, and setting it back to read again."""

from collections.abc import Mapping
from datetime import datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError

from tidegate.core.errors import InvalidArgument, ServerRefused
from tidegate.systems.snapshots.transport.kafka.connection import client_options, speaking, stop_consumer, stop_in_time
from tidegate.systems.snapshots.transport.kafka.reading import Reader
from tidegate.systems.snapshots.transport.kafka.settings import KafkaSettings


async def lag(admin: AIOKafkaAdminClient, reader: Reader, partitions: list[TopicPartition], group: str) -> int:
    """How many messages the group has not committed. Those that its members have in hand are among them."""
    spans = await reader.spans(partitions)
    committed = await admin.list_consumer_group_offsets(group, partitions=partitions)
    # A broker that has just heard of a topic leaves its partitions out: nobody has committed anything there.
    done = {each: committed[each].offset for each in spans if each in committed}
    return sum(end - max(begin, done.get(each, begin)) for each, (begin, end) in spans.items())


async def set_back(settings: KafkaSettings, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Have the group go on from these places. Raises `ServerRefused` while it has members: they would not notice."""
    consumer = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **client_options(settings))
    try:
        async with speaking(settings, f"to set {group} back"):
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


async def places(
    reader: Reader, partitions: list[TopicPartition], since: datetime | Mapping[int, int]
) -> dict[TopicPartition, int]:
    """Where messages of a time begin, or the given offsets by partition; refuses what the topic does not have."""
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise InvalidArgument("since", since, "must have a time zone")
        return await reader.since(partitions, int(since.timestamp() * 1000))
    spans = await reader.spans(partitions)
    by_number = {each.partition: each for each in partitions}
    for number, offset in since.items():
        begin, end = spans.get(by_number.get(number, TopicPartition("", number)), (0, -1))
        if not begin <= offset <= end:
            raise InvalidArgument("since", {number: offset}, "the topic has no such place")
    return {by_number[number]: offset for number, offset in since.items()}
