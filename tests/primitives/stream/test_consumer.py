import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis import Redis

from tests.primitives.stream.conftest import Wire
from tests.primitives.stream.messages import ids, numbered, numbers
from tests.primitives.wakeup.waiters import until_blocked
from tests.virtual_time import run_virtually
from tests.waiting import lasting_at_least
from tidegate.core.errors import ValkeyUnavailable
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.primitives.stream.consumer import PausingReader
from tidegate.storage.valkey import Valkey


async def cancel(task: "asyncio.Task[object]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
def pausing(valkey: Valkey) -> Stream:
    """As on a server that forbids blocking reads."""
    return Stream(valkey, valkey.unit("work"), "jobs", StreamSettings(blocking=False))


async def test_a_reader_waits_for_a_message(stream: Stream, valkey: Valkey):
    waiting = asyncio.create_task(stream.consumer("w").read(10, 30))
    await until_blocked(valkey, stream.keys.stream)
    await stream.add(numbered([1]))
    assert numbers(await waiting) == [1]


async def test_a_reader_returns_empty_after_its_timeout(stream: Stream):
    assert await stream.consumer("w").read(10, 0.01) == []
    assert await stream.consumer("w").read(10, 0) == []


# replies that were lost


async def test_messages_delivered_in_a_lost_reply_are_read_again(wire: Wire):
    """The server counts it as delivered; the connection broke before it arrived."""
    consumer = wire.stream.consumer("w")
    assert await consumer.read(10, 0) == []
    await wire.stream.add(numbered(range(3)))
    wire.proxy.cut_after(b"XREADGROUP")
    with pytest.raises(ValkeyUnavailable):
        await consumer.read(10, 0)
    assert (await wire.stream.status()).pending == 3, "this is what makes it a trap"
    await wire.stream.add(numbered([3]))
    assert numbers(await consumer.read(10, 0)) == [0, 1, 2]
    assert numbers(await consumer.read(10, 0)) == [3]


async def test_messages_in_progress_are_not_read_again_after_an_error(wire: Wire):
    consumer = wire.stream.consumer("w")
    await wire.stream.add(numbered(range(5)))
    in_hand = await consumer.read(3, 0)
    wire.proxy.cut_after(b"XREADGROUP")
    with pytest.raises(ValkeyUnavailable):
        await consumer.read(10, 0)
    assert numbers(await consumer.read(2, 0)) == [3], "found behind a whole page of what is in hand"
    assert numbers(await consumer.read(2, 0)) == [4]
    assert await consumer.read(2, 0) == []
    assert await consumer.ack(ids(in_hand)) == 3


async def test_messages_delivered_to_a_cancelled_read_are_read_again(embedded: Valkey):
    stream = Stream(embedded, embedded.unit("work"), "jobs")
    consumer = stream.consumer("w")
    reading = asyncio.create_task(consumer.read(10, 30))
    await until_blocked(embedded, stream.keys.stream)
    with Redis.from_url(embedded.url) as plain:  # which does not let the reader run between the two
        plain.xadd(stream.keys.stream, {"n": "1"})
        await cancel(reading)
    assert reading.cancelled()
    assert (await stream.status()).pending == 1
    assert numbers(await consumer.read(10, 0)) == [1]


async def test_a_consumer_restarted_under_its_name_finds_its_pending_messages(stream: Stream):
    await stream.add(numbered(range(5)))
    await stream.consumer("w").read(3, 0)
    restarted = stream.consumer("w")
    assert numbers(await restarted.read(2, 0)) == [0, 1]
    assert numbers(await restarted.read(2, 0)) == [2]
    assert numbers(await restarted.read(2, 0)) == [3, 4]


async def test_messages_acknowledged_by_a_script_of_the_caller_are_forgotten(stream: Stream):
    await stream.add(numbered([1]))
    consumer = stream.consumer("w")
    [message] = await consumer.read(10, 0)
    await stream.ack([message.id])
    consumer.settled([message.id])
    assert consumer.held == set()


async def test_a_message_deleted_while_pending_is_not_returned(stream: Stream, valkey: Valkey):
    await stream.add(numbered([1, 2]))
    [first, _] = await stream.consumer("w").read(10, 0)
    await valkey.execute("XDEL", stream.keys.stream, first.id)
    assert numbers(await stream.consumer("w").read(10, 0)) == [2]
    assert (await stream.status()).pending == 1


# a group that was lost


async def test_a_reader_survives_the_loss_of_all_data(stream: Stream, valkey: Valkey):
    consumer = stream.consumer("w")
    reading = asyncio.create_task(consumer.read(10, 30))
    await until_blocked(valkey, stream.keys.stream)
    await valkey.execute("DEL", stream.keys.stream)
    await until_blocked(valkey, stream.keys.stream)
    await stream.add(numbered([1]))
    assert numbers(await reading) == [1]


async def test_a_lost_group_is_recreated_with_all_messages(stream: Stream, valkey: Valkey):
    await stream.add(numbered(range(3)))
    consumer, other = stream.consumer("w"), stream.consumer("other")
    [in_hand] = await consumer.read(1, 0)
    await other.read(1, 0)
    await valkey.execute("XGROUP", "DESTROY", stream.keys.stream, "workers")
    assert await stream.take_over("w") == 0
    assert await stream.sweep_idle() == 300_000
    assert await stream.retry("w", [in_hand.id], "late") == 0
    assert numbers(await consumer.read(10, 0)) == [1, 2], "its own is in hand"
    assert await consumer.ack([in_hand.id]) == 1
    assert (await stream.status())[:3] == (2, 2, 0)


# servers without blocking reads


async def test_without_blocking_reads_a_reader_still_gets_its_message(pausing: Stream, valkey: Valkey):
    reading = asyncio.create_task(pausing.consumer("w").read(10, 30))
    while not await valkey.execute("EXISTS", pausing.keys.stream):
        pass  # every look is a round trip
    await pausing.add(numbered([1]))
    assert numbers(await reading) == [1]


async def test_without_blocking_reads_a_reader_returns_after_its_timeout(pausing: Stream):
    with lasting_at_least(0.15):
        assert await pausing.consumer("w").read(10, 0.15) == []


def test_the_last_pause_ends_with_the_timeout_of_the_read():
    async def fetch(_count: int, _block_ms: int | None) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return []

    async def scenario(now_s: Callable[[], float]) -> float:
        assert await PausingReader(fetch).wait(1, 0.15) == []
        return now_s()

    assert run_virtually(scenario) == 0.15


async def test_pauses_between_reads_grow_until_a_message_arrives(monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    answers = iter([[], [], [], [], [], [], [(b"1-1", {b"n": b"1"})], [], [(b"1-2", {b"n": b"2"})]])

    async def fetch(count: int, block_ms: int | None) -> list[tuple[bytes, dict[bytes, bytes]]]:
        assert block_ms is None
        return next(answers)

    monkeypatch.setattr(asyncio, "sleep", note)
    reader = PausingReader(fetch)
    assert await reader.wait(1, 60)
    assert await reader.wait(1, 60)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.1]


async def test_the_server_capabilities_decide_which_reader_is_used(stream: Stream, valkey: Valkey):
    """The setting is for servers that say one thing and do another."""
    assert stream.settings.blocking is None
    assert valkey.info.can_block
    reading = asyncio.create_task(stream.consumer("w").read(1, 30))
    await until_blocked(valkey, stream.keys.stream)
    await cancel(reading)


# leaving


async def test_messages_of_a_leaving_consumer_are_available_to_others_immediately(stream: Stream, valkey: Valkey):
    await stream.add(numbered(range(250)))
    leaving = stream.consumer("leaving")
    messages = await leaving.read(240, 0)
    await leaving.ack(ids(messages[:10]))
    assert await leaving.leave() == 230
    others = await stream.consumer("other").read(1000, 0)
    assert sorted(numbers(others)) == list(range(10, 250))
    assert {message.deliveries for message in others} == {1}, "nobody failed"
    assert [each.name for each in (await stream.status()).consumers] == ["other"]
    assert leaving.held == set()


async def test_leaving_keeps_the_count_of_earlier_failures(stream: Stream):
    await stream.add(numbered([1]))
    consumer = stream.consumer("w")
    for _ in range(2):
        await consumer.retry(ids(await consumer.read(1, 0)), "no")
    for _ in range(5):
        [message] = await consumer.read(1, 0)
        assert message.deliveries == 3
        assert await consumer.leave() == 1


async def test_leaving_with_a_message_in_progress_counts_as_a_delivery(stream: Stream):
    await stream.add(numbered([1]))
    consumer = stream.consumer("w")
    for deliveries in (1, 2, 3):
        [message] = await consumer.read(1, 0)
        assert message.deliveries == deliveries
        assert await consumer.leave(counts=True) == 1


async def test_a_read_interrupted_by_leaving_keeps_no_message(stream: Stream, valkey: Valkey):
    """Whatever comes first, the message, the end of the read or the leave: the message is there for others."""
    other = stream.consumer("other")
    for n in range(20):
        leaving = stream.consumer(f"leaving-{n}")
        reading = asyncio.create_task(leaving.read(10, 30))
        await until_blocked(valkey, stream.keys.stream)
        adding = asyncio.create_task(stream.add(numbered([n])))
        await asyncio.wait([reading, adding], timeout=n / 10_000)
        await cancel(reading)
        await leaving.leave()
        await adding
        messages = await other.read(10, 0)
        assert numbers(messages) == [n]
        await other.ack(ids(messages))
