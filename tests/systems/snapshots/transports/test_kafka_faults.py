"""Events when the broker, a member or the database fails, on a real broker."""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from tests.processes import start_warm
from tests.servers.kafka import Broker, broker
from tests.systems.snapshots.transports.test_conformance import WITHIN_S, member, numbered, read_all, values
from tidegate.core.errors import Unavailable
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport
from tidegate.systems.snapshots.transports.protocol import GROUPS, Delivery, RefreshTopic, TransportConsumer

HIGH, GROUP = RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH]


@pytest.fixture
def server() -> Broker:
    return broker()


@pytest.fixture
async def settings(server: Broker) -> AsyncGenerator[KafkaSettings]:
    ours = server.settings().model_copy(update={"answer_within": timedelta(seconds=3)})
    yield ours
    if server.runs:
        await server.forget(ours)


@pytest.fixture
async def kafka(settings: KafkaSettings) -> AsyncGenerator[KafkaTransport]:
    transport = KafkaTransport(settings)
    await transport.create_topics()
    yield transport
    await transport.close()


@pytest.fixture
async def other(settings: KafkaSettings) -> AsyncGenerator[KafkaTransport]:
    """As another process has it."""
    transport = KafkaTransport(settings)
    yield transport
    await transport.close()


def partition(delivery: Delivery) -> str:
    return delivery.handle.split("-")[0]


async def read_until_quiet(consumer: TransportConsumer) -> list[Delivery]:
    found: list[Delivery] = []
    while some := await consumer.read(100, 1):
        found += some
    return found


async def read_together(consumers: Sequence[TransportConsumer], wanted: int) -> list[list[Delivery]]:
    """Exactly so many by all of them."""
    found: list[list[Delivery]] = [[] for _ in consumers]
    async with asyncio.timeout(WITHIN_S):
        while sum(map(len, found)) < wanted:
            for each, consumer in zip(found, consumers, strict=True):
                each.extend(await consumer.read(100, 0.2))
    return found


async def until_it_is_back(attempt: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await attempt()
                return
            except Unavailable:
                continue


@pytest.mark.crash
async def test_a_killed_and_restarted_broker_has_lost_nothing(
    kafka: KafkaTransport, server: Broker, settings: KafkaSettings
):
    """One life of a broker for many rules, since each takes seconds."""
    used, gone = threading.Event(), threading.Event()
    left_open = asyncio.create_task(asyncio.to_thread(asyncio.run, _close_while_it_is_away(settings, used, gone)))
    await kafka.publish(HIGH, numbered(20))
    async with member(kafka) as consumer:
        found = await read_all(consumer, 20)
        await consumer.ack(found[:10])
        await asyncio.to_thread(used.wait, WITHIN_S)
        await kafka.publish(RefreshTopic.LOW, numbered(50))
        server.kill()
        gone.set()

        away = [kafka.publish(HIGH, [("kind/away", b"away")]), consumer.ack(found[10:15]), kafka.lag(HIGH, GROUP)]
        met = await asyncio.gather(consumer.read(5, 0.2), *away, return_exceptions=True)
        assert [each if isinstance(each, list) else type(each) for each in met] == [[], *[Unavailable] * 3]
        assert await left_open == set()

        await asyncio.to_thread(server.start_again)
        await until_it_is_back(lambda: kafka.publish(HIGH, [("kind/back", b"back")]))
        # What was in hand stayed in hand, and what could not be confirmed came after all: it was tried on.
        after = await read_all(consumer, 2)
        assert sorted(values(after)) == [b"away", b"back"]
        await until_it_is_back(lambda: consumer.ack([*found[10:], *after]))
        assert await kafka.lag(HIGH, GROUP) == 0

    async with member(kafka, RefreshTopic.LOW) as newcomer:
        low = await read_all(newcomer, 50)
        await until_it_is_back(lambda: newcomer.ack(low))
    assert sorted(values(low)) == sorted(value for _, value in numbered(50))


async def _close_while_it_is_away(settings: KafkaSettings, used: threading.Event, gone: threading.Event) -> set[str]:
    """In a loop of its own: use everything, and close it when the broker is gone; which tasks are left running."""
    transport = KafkaTransport(settings.model_copy(update={"answer_within": timedelta(seconds=1)}))
    await until_it_is_back(lambda: transport.publish(RefreshTopic.LOW, []))
    await until_it_is_back(transport.dead_count)
    assert await transport.consumer(RefreshTopic.LOW, GROUPS[RefreshTopic.LOW]).read(1, 0.3) == []
    used.set()
    await asyncio.to_thread(gone.wait, WITHIN_S)
    with pytest.raises(Unavailable):
        await transport.publish(HIGH, [("kind/never", b"never")])
    async with asyncio.timeout(WITHIN_S):
        await transport.close()
    return {str(each) for each in asyncio.all_tasks() - {asyncio.current_task()}}


@pytest.mark.crash
async def test_messages_of_a_killed_process_go_to_another(kafka: KafkaTransport, settings: KafkaSettings):
    await kafka.publish(HIGH, numbered(12))
    doomed = await start_warm(
        *(sys.executable, "-m", "tests.systems.snapshots.transports.kafka_reader", settings.model_dump_json(), "12"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert doomed.stdout
        async with asyncio.timeout(WITHIN_S):
            assert await doomed.stdout.readline() == b"in hand\n"
    finally:
        doomed.kill()
        await doomed.wait()

    async with member(kafka) as heir:
        again = await read_all(heir, 12)
        await heir.ack(again)

    assert sorted(values(again)) == sorted(value for _, value in numbered(12))
    assert {each.deliveries for each in again} == {2}


async def test_a_new_member_gets_unfinished_messages_and_only_it_commits_them(
    kafka: KafkaTransport, other: KafkaTransport
):
    await kafka.publish(HIGH, numbered(60))
    async with member(kafka) as first:
        held = await read_all(first, 60)
        async with member(other) as second:
            taken_over = [each async for each in _shared(first, second)]
            lost = {each.value for each in taken_over}
            assert 0 < len(lost) < 60

            await first.ack(held)  # also what is no longer its own
            assert await kafka.lag(HIGH, GROUP) == len(lost)
            await first.retry(held, "what went to another is not read here again")
            assert await first.read(100, 0.3) == []

            await second.ack(taken_over)
            assert await kafka.lag(HIGH, GROUP) == 0

    # Whole partitions moved, and what stayed did not come a second time.
    moved = {partition(each) for each in taken_over}
    assert {each.value for each in held if partition(each) in moved} == lost


async def _shared(first: TransportConsumer, second: TransportConsumer) -> AsyncGenerator[Delivery]:
    """What the second is given when it comes, while the first goes on reading and is given nothing."""
    reading = asyncio.create_task(first.read(100, WITHIN_S))
    found = await read_all(second, 1)
    found += await read_until_quiet(second)
    reading.cancel()
    [came] = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(came, asyncio.CancelledError)
    for each in found:
        yield each


async def test_a_partition_assigned_again_is_read_from_its_committed_offset(
    kafka: KafkaTransport, other: KafkaTransport
):
    await kafka.publish(HIGH, numbered(60))
    async with member(kafka) as first:
        held = await read_all(first, 60)
        async with member(other) as second:
            taken_over = [each async for each in _shared(first, second)]
            done = taken_over[::2]
            await second.ack(done)
        back = await read_all(first, 1)
        back += await read_until_quiet(first)
        await first.ack([*held, *back])
        assert await kafka.lag(HIGH, GROUP) == 0

    missing = {each.value for each in taken_over} - {each.value for each in done}
    assert missing <= {each.value for each in back} <= {each.value for each in taken_over}
    assert not {each.handle for each in back} & {each.handle for each in held}


async def test_a_paused_consumer_stays_a_member(kafka: KafkaTransport, other: KafkaTransport, settings: KafkaSettings):
    """Longer than a silent member would stay one, nobody else is given what it holds or what comes for it."""
    async with member(kafka) as first, member(other) as second:
        await asyncio.gather(first.read(1, 1), second.read(1, 1))
        await kafka.publish(HIGH, numbered(60))
        of_first, of_second = await read_together([first, second], 60)
        assert of_first
        assert of_second

        await first.pause()
        assert await second.read(100, 2 * settings.session.total_seconds()) == []
        await first.resume()
        await kafka.publish(HIGH, [(of_first[0].key, b"later")])
        later = await read_all(first, 1)
        await first.ack([*of_first, *later])
        await second.ack(of_second)
        assert await kafka.lag(HIGH, GROUP) == 0

    assert values(later) == [b"later"]


async def test_a_consumer_paused_during_a_rebalance_reads_nothing(kafka: KafkaTransport, other: KafkaTransport):
    async with member(kafka) as first:
        assert await first.read(1, 1) == []
        await first.pause()
        async with member(other) as second:
            reading = asyncio.create_task(first.read(100, WITHIN_S))
            assert await second.read(1, 1) == []
            await kafka.publish(HIGH, numbered(60))
            found = await read_all(second, 1)
            assert not reading.done()
            await first.resume()
            found += await reading
            rest = await read_together([first, second], 60 - len(found))

    assert sorted(values([*found, *rest[0], *rest[1]])) == sorted(value for _, value in numbered(60))
