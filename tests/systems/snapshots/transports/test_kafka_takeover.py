"""A member that is given partitions: nothing is handed out before it is known, and on record, how they stand.

The driver fetches while it tells us what is ours, so the answers that tell how a partition stands are made late here.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, NotLeaderForPartitionError, TopicAuthorizationFailedError
from aiokafka.structs import OffsetAndMetadata
from structlog.testing import capture_logs

from tests.servers.kafka import broker
from tests.servers.refusing import lines_of_outage, told
from tests.systems.snapshots.transports.test_conformance import WITHIN_S, member, numbered, read_all, values
from tests.waiting import is_pending, observe_absence, patience, simulated_delay
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka.consumer import KafkaConsumer
from tidegate.systems.snapshots.transports.kafka.partitions import PartitionState
from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport
from tidegate.systems.snapshots.transports.protocol import GROUPS, TOPICS, Delivery, RefreshTopic

HIGH, GROUP = RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH]


class Answers:
    """Where partitions begin and end: how late a broker says so, and which errors it gives before."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.late_s, self.errors = 0.3, list[Exception]()
        self.came = asyncio.Event()
        for name in ("beginning_offsets", "end_offsets"):
            patch.setattr(AIOKafkaConsumer, name, self._instead_of(getattr(AIOKafkaConsumer, name)))

    def _instead_of(self, real: Any) -> Any:
        async def answer(member: Any, partitions: Any) -> Any:
            if member._group_id is None:
                return await real(member, partitions)  # who measures the lag is no member
            await simulated_delay(self.late_s)
            if self.errors:
                raise self.errors.pop(0)
            found = await real(member, partitions)
            self.came.set()
            return found

        return answer


@pytest.fixture
async def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


@pytest.fixture
async def settings() -> AsyncGenerator[KafkaSettings]:
    server = broker()
    ours = server.settings()
    yield ours
    await server.forget(ours)


@pytest.fixture
async def kafka(settings: KafkaSettings) -> AsyncGenerator[KafkaTransport]:
    transport = KafkaTransport(settings)
    await transport.create_topics()
    yield transport
    await transport.close()


async def left_at(settings: KafkaSettings, offset: int, text: str) -> None:
    """What the last owner of all partitions committed."""
    topic = f"{settings.prefix}{HIGH}"
    last = AIOKafkaConsumer(
        bootstrap_servers=settings.servers, group_id=f"{settings.prefix}{GROUP}", enable_auto_commit=False
    )
    await last.start()
    partitions = [TopicPartition(topic, n) for n in range(TOPICS[HIGH].partitions)]
    last.assign(partitions)
    await last.commit({each: OffsetAndMetadata(offset, text) for each in partitions})
    await last.stop()


def times(deliveries: list[Delivery]) -> list[int]:
    return [each.deliveries for each in deliveries]


async def test_messages_in_progress_are_not_committed_by_others(kafka: KafkaTransport, answers: Answers):
    await kafka.publish(HIGH, numbered(3, key="kind/same"))
    async with member(kafka) as consumer:
        [held] = await read_all(consumer, 1)
        await answers.came.wait()
        await observe_absence(0.1)
        await consumer.ack(await read_all(consumer, 2))
        assert await kafka.lag(HIGH, GROUP) == 3

        await consumer.retry([held], "it must be known still")
        [again] = await read_all(consumer, 1)
        await consumer.ack([again])
        assert again.value == held.value
        assert await kafka.lag(HIGH, GROUP) == 0


async def test_finished_messages_stay_finished(kafka: KafkaTransport, answers: Answers):
    await kafka.publish(HIGH, numbered(1))
    async with member(kafka) as consumer:
        await consumer.ack(await read_all(consumer, 1))
        await answers.came.wait()
        await observe_absence(0.1)
        assert await kafka.lag(HIGH, GROUP) == 0


async def test_deaths_are_counted_also_when_kafka_is_slow_or_busy(
    kafka: KafkaTransport, settings: KafkaSettings, answers: Answers
):
    answers.errors.append(NotLeaderForPartitionError())
    await left_at(settings, 0, "open")
    await kafka.publish(HIGH, numbered(20))
    async with member(kafka) as consumer:
        found = await read_all(consumer, 20)
        await consumer.ack(found)
    assert times(found) == [2] * 20


@pytest.mark.usefixtures("logged")
async def test_a_member_without_rights_is_reported_once_and_reads_when_it_has_them(
    kafka: KafkaTransport, settings: KafkaSettings, answers: Answers
):
    answers.late_s = 0
    answers.errors += [TopicAuthorizationFailedError(HIGH) for _ in range(3)]
    await left_at(settings, 0, "open")
    await kafka.publish(HIGH, numbered(1))
    with capture_logs() as lines:
        async with patience(), member(kafka) as consumer:
            assert times(await read_all(consumer, 1)) == [2]

    assert not answers.errors, "it was refused three times"
    assert lines_of_outage(lines) == ["server.refused", "server.back"]
    [refused] = told(lines, "server.refused")
    assert "TopicAuthorizationFailedError. Check the permissions of the user" in refused


async def test_members_that_join_meanwhile_lose_nothing(
    kafka: KafkaTransport, settings: KafkaSettings, answers: Answers
):
    other = KafkaTransport(settings)
    await kafka.publish(HIGH, numbered(60))
    done: set[bytes] = set()
    async with member(kafka) as first, member(other) as second:

        async def work(consumer: Any, after_s: float) -> None:
            await simulated_delay(after_s)
            while len(done) < 60:
                found = await consumer.read(3, 0.3)
                await consumer.ack(found)
                done.update(values(found))

        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(work(first, 0), work(second, 0.3))
    assert await kafka.lag(HIGH, GROUP) == 0
    await other.close()


async def test_leaving_before_the_first_delivery_is_not_counted_as_a_crash(kafka: KafkaTransport, answers: Answers):
    answers.late_s = 60
    await kafka.publish(HIGH, numbered(1))
    async with patience(), member(kafka) as consumer:
        assert await consumer.read(1, 0.5) == []
    answers.late_s = 0
    async with member(kafka) as heir:
        assert times(await read_all(heir, 1)) == [1]


async def test_a_paused_consumer_reads_nothing_until_it_resumes(kafka: KafkaTransport, answers: Answers):
    await kafka.publish(HIGH, numbered(1))
    async with member(kafka) as consumer:
        assert await consumer.read(1, 0.05) == []
        await consumer.pause()
        await consumer.resume()  # which opens nothing that is not known yet
        await consumer.pause()
        reading = asyncio.create_task(consumer.read(1, WITHIN_S))
        await answers.came.wait()
        assert await is_pending(reading)
        await consumer.resume()
        assert values(await reading) == [b"0"]


async def test_a_log_that_lost_its_end_is_read_from_its_start(
    kafka: KafkaTransport, settings: KafkaSettings, answers: Answers
):
    """Nobody knows what was written there anew: the offsets that were done are given to other messages."""
    await left_at(settings, 3, "open 40 0+7:1")
    await kafka.publish(HIGH, numbered(1, key="kind/same"))
    async with member(kafka) as consumer:
        reading = asyncio.create_task(read_all(consumer, 5))
        await answers.came.wait()  # and it is asked next where it begins
        await kafka.publish(HIGH, numbered(4, key="kind/same"))  # now there is again what was committed
        found = await reading
        await consumer.ack(found)
        await kafka.publish(HIGH, numbered(1, key="kind/same"))
        assert await kafka.lag(HIGH, GROUP) == 1
    assert values(found) == [b"0", b"0", b"1", b"2", b"3"]
    assert times(found) == [1] * 5


def test_results_of_a_log_that_lost_them_are_forgotten():
    """No broker loses it at a test's refresh_request, so what it would say is given by hand."""
    consumer, place, sought = KafkaConsumer(KafkaSettings(), "topic", "group"), TopicPartition("topic", 0), Mock()
    books = consumer._offsets  # pyright: ignore[reportPrivateUsage]
    books.open(0, 3)
    held = [books.take(0, offset) or "" for offset in (3, 4)]
    consumer._load(sought, {place: PartitionState((3, "open"), 3, 5)})  # pyright: ignore[reportPrivateUsage]
    assert all(map(books.holds, held))

    consumer._load(sought, {place: PartitionState((3, "open"), 3, 4)})  # pyright: ignore[reportPrivateUsage]
    assert not any(map(books.holds, held))
    assert books.take(0, 3)
    sought.seek.assert_not_called()


async def test_messages_are_held_back_until_their_delivery_is_recorded(
    kafka: KafkaTransport, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
):
    await left_at(settings, 0, "open")
    await kafka.publish(HIGH, numbered(2, key="kind/same"))

    async def commit(*_: object) -> None:
        raise CommitFailedError

    async with member(kafka) as consumer:
        await read_all(consumer, 1)
        with monkeypatch.context() as patch:
            patch.setattr(AIOKafkaConsumer, "commit", commit)
            assert await consumer.read(1, 0.3) == []
        [found] = await read_all(consumer, 1)
    assert (found.value, found.deliveries) == (b"1", 2)
