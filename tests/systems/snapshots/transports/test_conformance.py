"""What every transport promises (`tidegate.systems.snapshots.transports.protocol`), on every transport."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.systems.snapshots.transports.conftest import TransportHarness
from tests.waiting import simulated_delay
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.runtime.waiting import occurs
from tidegate.systems.snapshots.transports.protocol import GROUPS, Delivery, RefreshTopic, Transport, TransportConsumer
from tidegate.systems.snapshots.transports.streams import StreamTransport

WITHIN_S = 60.0
"""How long anything may take that must happen; a broker needs a moment to seat a new member."""


@asynccontextmanager
async def member(transport: Transport, topic: RefreshTopic = RefreshTopic.HIGH) -> AsyncGenerator[TransportConsumer]:
    consumer = transport.consumer(topic, GROUPS[topic])
    try:
        yield consumer
    finally:
        await consumer.leave()


async def read_all(consumer: TransportConsumer, wanted: int) -> list[Delivery]:
    """Exactly so many, however they are cut."""
    found: list[Delivery] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < wanted:
            found += await consumer.read(wanted - len(found), WITHIN_S)
    return found


def values(deliveries: list[Delivery]) -> list[bytes]:
    return [each.value for each in deliveries]


def numbered(count: int, key: str = "kind/{}") -> list[tuple[str, bytes]]:
    return [(key.format(n), b"%d" % n) for n in range(count)]


async def test_a_published_message_is_delivered_once_with_its_key(transport: Transport):
    await transport.publish(RefreshTopic.HIGH, numbered(30))

    async with member(transport) as consumer:
        found = await read_all(consumer, 30)
        await consumer.ack(found)
        assert await consumer.read(10, 0.2) == []

    assert sorted((each.key, each.value) for each in found) == sorted(numbered(30))
    assert len({each.handle for each in found}) == 30


async def test_messages_of_one_key_are_delivered_in_order(transport: Transport):
    await transport.publish(RefreshTopic.HIGH, numbered(25, key="kind/same"))
    await transport.publish(RefreshTopic.HIGH, [("kind/same", b"last")])

    async with member(transport) as consumer:
        found = await read_all(consumer, 26)
        await consumer.ack(found)

    assert values(found) == [b"%d" % n for n in range(25)] + [b"last"]


async def test_topics_are_separate(transport: Transport):
    await transport.publish(RefreshTopic.LOW, [("kind/low", b"low")])
    await transport.publish(RefreshTopic.HIGH, [("kind/high", b"high")])

    async with member(transport) as high, member(transport, RefreshTopic.LOW) as low:
        of_high, of_low = await read_all(high, 1), await read_all(low, 1)
        await high.ack(of_high)
        await low.ack(of_low)

    assert (values(of_high), values(of_low)) == ([b"high"], [b"low"])


async def test_a_waiting_reader_gets_new_messages(transport: Transport):
    async with member(transport) as consumer:
        reading = asyncio.create_task(read_all(consumer, 1))
        await transport.publish(RefreshTopic.HIGH, [("kind/1", b"1")])
        found = await reading
        await consumer.ack(found)

    assert values(found) == [b"1"]


async def test_acknowledged_messages_are_not_redelivered_and_the_others_are(transport: Transport):
    """In any order: the later ones are done, the first is not."""
    await transport.publish(RefreshTopic.HIGH, numbered(5, key="kind/same"))
    async with member(transport) as consumer:
        found = await read_all(consumer, 5)
        await consumer.ack([each for each in found if each.value not in (b"0", b"2")])

    async with member(transport) as heir:
        again = await read_all(heir, 1)
        while not {b"0", b"2"} <= set(values(again)):
            again += await read_all(heir, 1)
        await heir.ack(again)

    # A transport may deliver again what was acknowledged behind a gap, but never the other way round.
    assert {b"0", b"2"} <= set(values(again))


async def test_acknowledging_everything_in_reverse_order_completes_all(transport: Transport):
    await transport.publish(RefreshTopic.HIGH, numbered(6, key="kind/same"))
    async with member(transport) as consumer:
        for each in reversed(await read_all(consumer, 6)):
            await consumer.ack([each])

    await transport.publish(RefreshTopic.HIGH, [("kind/same", b"new")])
    async with member(transport) as heir:
        found = await read_all(heir, 1)
        await heir.ack(found)

    assert values(found) == [b"new"]


async def test_an_acknowledgement_can_be_repeated(transport: Transport):
    await transport.publish(RefreshTopic.HIGH, numbered(2))
    async with member(transport) as consumer:
        found = await read_all(consumer, 2)
        await consumer.ack(found)
        await consumer.ack(found)
        assert await consumer.read(5, 0.2) == []


async def test_returned_messages_are_redelivered(transport: Transport):
    await transport.publish(RefreshTopic.HIGH, numbered(3))
    async with member(transport) as consumer:
        found = await read_all(consumer, 3)
        await consumer.ack(found[1:])
        await consumer.retry(found[:1], "the test wants it so")
        again = await read_all(consumer, 1)
        await consumer.ack(again)
        assert await consumer.read(5, 0.2) == []

    assert values(again) == values(found[:1])
    assert again[0].deliveries >= 1


async def test_messages_of_a_process_declared_dead_no_longer_belong_to_it(harness: TransportHarness):
    await harness.transport.publish(RefreshTopic.HIGH, numbered(3, key="kind/same"))
    async with harness.another_process() as other, member(other) as doomed:
        found = await read_all(doomed, 3)
        await doomed.ack(found[:1])
        assert await doomed.held(found) == found[1:]
        if isinstance(other, StreamTransport):  # a member of a Kafka group hears of it with its next sign of life
            await harness.bury(other)
            assert await doomed.held(found) == []


async def test_a_paused_consumer_keeps_its_deliveries_and_continues_later(transport: Transport):
    await transport.publish(RefreshTopic.HIGH, numbered(1))
    async with member(transport) as consumer:
        found = await read_all(consumer, 1)
        await consumer.pause()
        await consumer.pause()
        await transport.publish(RefreshTopic.HIGH, [("kind/later", b"later")])
        await consumer.resume()
        await consumer.resume()
        later = await read_all(consumer, 1)
        await consumer.ack([*found, *later])
        assert await consumer.read(5, 0.2) == []

    assert (values(found), values(later)) == ([b"0"], [b"later"])


async def test_a_cancelled_read_loses_nothing(transport: Transport):
    async with member(transport) as consumer:
        for n in range(5):
            reading = asyncio.create_task(consumer.read(1, WITHIN_S))
            await simulated_delay(0.002 * n)
            await transport.publish(RefreshTopic.HIGH, [(f"kind/{n}", b"%d" % n)])
            reading.cancel()
            [outcome] = await asyncio.gather(reading, return_exceptions=True)
            found = outcome if isinstance(outcome, list) else await read_all(consumer, 1)
            assert values(found) == [b"%d" % n]
            await consumer.ack(found)


async def test_members_share_the_messages_without_duplicates(harness: TransportHarness):
    async with harness.another_process() as other, member(harness.transport) as one, member(other) as two:
        members = {id(one): one, id(two): two}
        done: Counter[bytes] = Counter()
        busy: set[int] = set()
        shared = asyncio.Event()

        async def work(name: int) -> None:
            while sum(done.values()) < 60:
                found = await members[name].read(3, 0.2)
                await members[name].ack(found)
                done.update(value for value in values(found) if value != b"early")
                if found:
                    busy.add(name)
                if len(busy) == 2:
                    shared.set()

        workers = [asyncio.create_task(work(each)) for each in members]
        async with asyncio.timeout(WITHIN_S):
            while not shared.is_set():  # while members still come, Kafka deals the work anew, and some comes twice
                await harness.transport.publish(RefreshTopic.HIGH, [(f"kind/{n}", b"early") for n in range(24)])
                await occurs(shared, within_s=0.5)
            await harness.transport.publish(RefreshTopic.HIGH, numbered(60))
            await asyncio.gather(*workers)

    assert done == Counter(b"%d" % n for n in range(60))


async def test_messages_of_a_dead_process_go_to_others(harness: TransportHarness):
    await harness.transport.publish(RefreshTopic.HIGH, numbered(4))
    async with harness.another_process() as other:
        doomed = other.consumer(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
        found = await read_all(doomed, 4)
        await doomed.ack(found[:1])
        await harness.bury(other)

        async with member(harness.transport) as heir:
            again = await read_all(heir, 3)
            await heir.ack(again)

    assert sorted(values(again)) == sorted(values(found[1:]))


async def test_deliveries_of_dead_processes_are_counted_and_graceful_leaves_are_not(harness: TransportHarness):
    await harness.transport.publish(RefreshTopic.HIGH, numbered(3, key="kind/same"))
    counted: list[list[int]] = []
    for deaths in range(3):
        async with harness.another_process() as other:
            doomed = other.consumer(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
            found = await read_all(doomed, 3 if deaths < 2 else 2)
            counted.append([each.deliveries for each in found])
            if deaths == 1:
                await doomed.ack(found[:1])
            await harness.bury(other)
    for _ in range(2):
        async with member(harness.transport) as heir:
            found = await read_all(heir, 2)
            counted.append([each.deliveries for each in found])
    async with member(harness.transport) as heir:
        await heir.ack(await read_all(heir, 2))
        await harness.transport.publish(RefreshTopic.HIGH, [("kind/same", b"new")])
        [new] = await read_all(heir, 1)

    assert counted == [[1, 1, 1], [2, 2, 2], [3, 3], [4, 4], [4, 4]]
    assert new.deliveries == 1


async def test_the_lag_counts_messages_that_were_not_delivered(transport: Transport):
    topic, group = RefreshTopic.LOW, GROUPS[RefreshTopic.LOW]
    assert await transport.lag(topic, group) == 0
    await transport.publish(topic, numbered(7))
    assert await transport.lag(topic, group) == 7
    async with member(transport, topic) as consumer:
        found = await read_all(consumer, 7)
        await consumer.ack(found)
        assert await transport.lag(topic, group) == 0


async def test_dead_letters_are_paginated_read_and_discarded_once(transport: Transport):
    await transport.publish(RefreshTopic.DEAD, numbered(5))

    assert await transport.dead_count() == 5
    first = await transport.dead(limit=2)
    rest = await transport.dead(after=first[-1].id, limit=50)
    everything = [*first, *rest]
    assert sorted((each.key, each.value) for each in everything) == numbered(5)

    chosen = everything[3]
    assert await transport.dead_one(chosen.id) == chosen
    assert sorted(await asyncio.gather(*(transport.drop(chosen.id) for _ in range(3)))) == [False, False, True]
    with pytest.raises(NotFound):
        await transport.dead_one(chosen.id)
    assert chosen not in await transport.dead()
    assert await transport.dead_count() == 4


async def test_invalid_arguments_are_refused(transport: Transport):
    with pytest.raises(InvalidArgument):
        await transport.dead(limit=0)
    with pytest.raises(InvalidArgument):
        await transport.dead(after="no entry")
    with pytest.raises(InvalidArgument):
        transport.consumer(RefreshTopic.HIGH, "strangers")
    with pytest.raises(InvalidArgument):
        transport.consumer(RefreshTopic.DEAD, "high-worker")
