"""Kafka only: creation of topics, replay from offsets, authentication."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pydantic import SecretStr, ValidationError

from tests.servers.kafka import PASSWORD, Broker, broker
from tests.systems.snapshots.transports.test_conformance import member, numbered, read_all, values
from tests.waiting import patience
from tidegate.core.errors import InvalidArgument, ServerRefused, Unavailable
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka.connection import KafkaReader, Publisher
from tidegate.systems.snapshots.transports.kafka.dead_letters import DeadMessages
from tidegate.systems.snapshots.transports.kafka.transport import DROPPED, KafkaTransport
from tidegate.systems.snapshots.transports.protocol import GROUPS, TOPICS, Message, RefreshTopic

HIGH, GROUP = RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH]


@pytest.fixture
def server() -> Broker:
    return broker()


@pytest.fixture
async def settings(server: Broker) -> AsyncGenerator[KafkaSettings]:
    ours = server.settings()
    yield ours
    await server.forget(ours)


@pytest.fixture
async def kafka(settings: KafkaSettings) -> AsyncGenerator[KafkaTransport]:
    transport = KafkaTransport(settings)
    yield transport
    await transport.close()


async def test_topics_are_created_once_with_their_settings(kafka: KafkaTransport, settings: KafkaSettings):
    assert [each.differences for each in await kafka.topics()] == [("missing",)] * 4

    made = await kafka.create_topics()
    assert await kafka.create_topics() == []

    reports = {each.name.removeprefix(settings.prefix): each for each in await kafka.topics()}
    assert made == [each.name for each in reports.values()]
    assert {topic: reports[topic].partitions for topic in TOPICS} == {
        RefreshTopic.HIGH: 24,
        RefreshTopic.LOW: 24,
        RefreshTopic.DEAD: 12,
    }
    assert all(each.exists and each.differences == () for each in reports.values())


async def test_a_topic_with_other_settings_is_kept_and_reported(kafka: KafkaTransport, settings: KafkaSettings):
    name = f"{settings.prefix}{RefreshTopic.LOW}"
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 1, topic_configs={"retention.ms": "1000"})])
    await admin.close()

    assert name not in await kafka.create_topics()

    [report] = [each for each in await kafka.topics() if each.name == name]
    assert "partitions is 3, should be 24" in report.differences
    assert "retention.ms is 1000, should be 259200000" in report.differences


async def test_more_copies_than_brokers_are_refused(settings: KafkaSettings):
    transport = KafkaTransport(settings.model_copy(update={"replication": 3}))
    with pytest.raises(ServerRefused, match="ReplicationFactor"):
        await transport.create_topics()
    await transport.close()


async def test_missing_topics_are_reported_with_the_command_that_creates_them(settings: KafkaSettings):
    transport = KafkaTransport(settings.model_copy(update={"answer_within": timedelta(seconds=1)}))
    with pytest.raises(Unavailable, match="topics --create"):
        await transport.dead_count()
    with pytest.raises(Unavailable):
        await transport.publish(HIGH, numbered(1))
    await transport.close()


async def test_a_group_can_be_reset_to_a_time_or_an_offset(kafka: KafkaTransport):
    await kafka.create_topics()
    await kafka.publish(HIGH, numbered(3, key="kind/same"))
    async with member(kafka) as consumer:
        before = await read_all(consumer, 3)
        await consumer.ack(before)
    noon = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= noon:
        pass
    await kafka.publish(HIGH, [("kind/same", b"late")])
    async with member(kafka) as consumer:
        await consumer.ack(await read_all(consumer, 1))

    await kafka.set_back(HIGH, GROUP, noon)
    async with member(kafka) as consumer:
        since_noon = await read_all(consumer, 1)
        with pytest.raises(ServerRefused, match="members"):
            await kafka.set_back(HIGH, GROUP, noon)
        await consumer.ack(since_noon)
    assert values(since_noon) == [b"late"]

    number = int(before[0].handle.split("-")[0])
    assert await kafka.set_back(HIGH, GROUP, {number: 1}) == {number: 1}
    async with member(kafka) as consumer:
        from_one = await read_all(consumer, 3)
        await consumer.ack(from_one)
        assert await consumer.read(5, 0.2) == []
    assert values(from_one) == [b"1", b"2", b"late"]


async def test_a_returned_message_wakes_a_waiting_reader(kafka: KafkaTransport):
    await kafka.create_topics()
    await kafka.publish(HIGH, numbered(1))
    async with member(kafka) as consumer:
        [found] = await read_all(consumer, 1)
        reading = asyncio.create_task(consumer.read(1, 20))
        await asyncio.sleep(0)
        await consumer.retry([found], "the test wants it so")
        async with patience():
            [again] = await reading
        await consumer.ack([again])
    assert (again.value, again.deliveries) == (found.value, 2)


async def test_unknown_positions_are_refused(kafka: KafkaTransport):
    await kafka.create_topics()
    with pytest.raises(InvalidArgument):
        await kafka.set_back(HIGH, GROUP, {0: 5})
    with pytest.raises(InvalidArgument):
        await kafka.set_back(HIGH, GROUP, {24: 0})
    with pytest.raises(InvalidArgument):
        await kafka.set_back(HIGH, GROUP, datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(InvalidArgument):
        await kafka.set_back(HIGH, "strangers", {0: 0})


async def test_a_message_rejected_by_kafka_is_refused_and_others_continue(kafka: KafkaTransport):
    await kafka.create_topics()
    with pytest.raises(InvalidArgument):
        await kafka.publish(HIGH, [("kind/1", bytes(3_000_000))])
    await kafka.publish(HIGH, numbered(1))
    assert await kafka.lag(HIGH, GROUP) == 1


async def test_a_discarded_dead_letter_stays_discarded_for_new_readers(kafka: KafkaTransport, settings: KafkaSettings):
    await kafka.create_topics()
    await kafka.publish(RefreshTopic.DEAD, numbered(6))
    chosen = (await kafka.dead())[2]
    assert await kafka.drop(chosen.id)

    later = KafkaTransport(settings)
    assert chosen.id not in [each.id for each in await later.dead()]
    assert await later.drop(chosen.id) is False
    assert await later.dead_count() == 5
    wrong_time = "1" + chosen.id[1:].replace("-", "1-", 1)
    assert await later.drop(wrong_time) is False
    await later.close()


async def test_of_two_concurrent_discards_one_succeeds(kafka: KafkaTransport, settings: KafkaSettings):
    """Both see it there, and then both write their note: the first note decides."""
    await kafka.create_topics()
    await kafka.publish(RefreshTopic.DEAD, numbered(1))
    [entry] = await kafka.dead()
    both_saw_it, publisher = asyncio.Barrier(2), Publisher(settings)

    async def note(topic: str, message: Message) -> None:
        await both_saw_it.wait()
        await publisher.publish(topic, [message])

    async def partitions(topic: str) -> list[int]:
        return list(range(TOPICS[RefreshTopic.DEAD].partitions))

    readers = [KafkaReader(settings), KafkaReader(settings)]
    topic, notes = f"{settings.prefix}{RefreshTopic.DEAD}", f"{settings.prefix}{DROPPED}"
    views = [DeadMessages(each, topic=topic, notes=notes, partitions=partitions, note=note) for each in readers]
    try:
        assert sorted(await asyncio.gather(*(each.drop(entry.id) for each in views))) == [False, True]
    finally:
        for each in (publisher, *readers):
            await each.close()


async def test_dead_letters_are_listed_by_age_across_partitions(kafka: KafkaTransport):
    await kafka.create_topics()
    for key, value in numbered(8):
        await kafka.publish(RefreshTopic.DEAD, [(key, value)])

    pages: list[bytes] = []
    after = None
    while page := await kafka.dead(after=after, limit=3):
        pages += [each.value for each in page]
        after = page[-1].id
    # Two of one millisecond may change places.
    assert sorted(pages) == [b"%d" % n for n in range(8)]
    assert pages.index(b"0") < pages.index(b"7")


async def test_a_password_is_accepted_and_never_shown(server: Broker, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    right = KafkaTransport(server.settings_with_password(PASSWORD))
    await right.create_topics()
    await right.publish(HIGH, numbered(1))
    async with member(right) as consumer:
        await consumer.ack(await read_all(consumer, 1))
    await right.close()

    secret = "not the right one"
    settings = server.settings_with_password(secret)
    wrong = KafkaTransport(settings)
    with pytest.raises((Unavailable, ServerRefused)) as refused:
        await wrong.publish(HIGH, numbered(1))
    await wrong.close()

    for shown in (str(refused.value), repr(settings), settings.model_dump_json(), caplog.text):
        assert secret not in shown
        assert PASSWORD not in shown


def test_invalid_settings_are_refused():
    with pytest.raises(ValidationError):
        KafkaSettings(security="SASL_SSL", user="somebody")
    with pytest.raises(ValidationError):
        KafkaSettings(prefix="with space")
    with pytest.raises(ValidationError):
        KafkaSettings(replication=0)
    assert KafkaSettings(security="SASL_SSL", user="somebody", password=SecretStr("x")).user == "somebody"
