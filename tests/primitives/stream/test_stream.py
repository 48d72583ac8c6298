import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.primitives.stream.conftest import Wire
from tests.primitives.stream.messages import ids, numbered, numbers
from tests.primitives.wakeup.waiters import until_blocked
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.stream import Message, Stream, StreamStatus
from tidegate.storage.valkey import Valkey

LONG_AGO = timedelta(minutes=6)


async def grow_old(valkey: Valkey, stream: Stream, consumer: str, message_id: str, age: timedelta) -> None:
    """Let the server believe that the message was delivered so long ago."""
    claim = "return redis.call('XCLAIM', KEYS[1], 'workers', ARGV[1], 0, ARGV[2], 'IDLE', ARGV[3], 'JUSTID')"
    age_ms = round(age.total_seconds() * 1000)
    await valkey.execute("EVAL", claim, 1, stream.keys.stream, consumer, message_id, age_ms)


async def test_a_message_arrives_as_it_was_sent(stream: Stream):
    fields = {
        b"job": b"7",
        "größe".encode(): b"\x00\xff\r\n",
        b"empty": b"",
        b"long": b"x" * 70_000,
        b"mid": b"y" * 300,
    }
    await stream.add([fields])
    [message] = await stream.consumer("w").read(10, 0)
    assert message == Message(message.id, fields, deliveries=1)


async def test_messages_arrive_in_the_order_they_were_added(stream: Stream):
    await stream.add(numbered(range(250)))
    await stream.add(numbered(range(250, 260)))
    assert numbers(await stream.consumer("w").read(1000, 0)) == list(range(260))


async def test_each_message_goes_to_one_consumer(stream: Stream):
    await stream.add(numbered(range(10)))
    first, second = await stream.consumer("a").read(6, 0), await stream.consumer("b").read(6, 0)
    assert numbers(first) + numbers(second) == list(range(10))


async def test_adding_an_empty_batch_adds_nothing(stream: Stream):
    await stream.add([])
    assert (await stream.status()).depth == 0


async def test_an_acknowledged_message_is_deleted(stream: Stream):
    await stream.add(numbered(range(3)))
    consumer = stream.consumer("w")
    messages = await consumer.read(10, 0)
    assert await consumer.ack(ids(messages[:2])) == 2
    assert (await stream.status())[:3] == (1, 1, 0)
    assert consumer.held == {messages[2].id}


async def test_an_acknowledgement_counts_once(stream: Stream):
    await stream.add(numbered(range(2)))
    consumer = stream.consumer("w")
    messages = ids(await consumer.read(10, 0))
    assert await consumer.ack(messages) == 2
    assert await consumer.ack(messages) == 0


async def test_more_messages_than_a_batch_are_acknowledged_at_once(stream: Stream):
    await stream.add(numbered(range(350)))
    consumer = stream.consumer("w")
    assert await consumer.ack(ids(await consumer.read(350, 0))) == 350
    assert (await stream.status())[:4] == (0, 0, 0, 0)


async def test_the_status_has_depth_pending_lag_and_consumers(stream: Stream):
    await stream.add(numbered(range(9)))
    await stream.consumer("a").read(2, 0)
    await stream.consumer("b", "2").read(3, 0)
    status = await stream.status()
    assert status[:4] == (9, 5, 4, 0)
    assert [(each.name, each.pending) for each in status.consumers] == [("a", 2), ("b/2", 3)]
    assert all(0 <= each.idle_ms < 60_000 for each in status.consumers)


async def test_the_status_of_a_missing_stream_is_empty(stream: Stream):
    assert await stream.status() == StreamStatus(0, 0, 0, 0, [])


# adding twice


async def test_the_same_token_adds_once(stream: Stream):
    await stream.add(numbered(range(150)), token="import.7")
    await stream.add(numbered(range(150)), token="import.7")
    await stream.add(numbered(range(150, 151)), token="import.8")
    assert numbers(await stream.consumer("w").read(1000, 0)) == list(range(151))


async def test_an_add_with_a_lost_reply_adds_once(wire: Wire):
    await wire.stream.add(numbered([0]))  # so that the server knows the script
    wire.proxy.cut_after(b"EVALSHA")
    await wire.stream.add(numbered(range(1, 4)))
    assert (await wire.stream.status()).depth == 4


async def test_the_token_of_an_add_expires(stream: Stream, valkey: Valkey):
    await stream.add(numbered([1]), token="t")
    assert 0 < await valkey.execute("PTTL", stream.keys.added("t.0")) <= 60_000


# refusing


async def test_a_retried_message_goes_to_others_and_is_counted(stream: Stream):
    await stream.add(numbered([1, 2]))
    consumer = stream.consumer("a")
    [first, _] = await consumer.read(10, 0)
    assert await consumer.retry([first.id], "upstream is away") == 1
    assert first.id not in consumer.held
    [again] = await stream.consumer("b").read(10, 0)
    assert (numbers([again]), again.deliveries) == ([1], 2)


async def test_the_last_retry_makes_a_dead_letter(stream: Stream):
    await stream.add([{b"n": b"1", b"x": b"\xff"}])
    consumer = stream.consumer("a")
    for delivery in (1, 2, 3):
        [message] = await consumer.read(10, 0)
        assert message.deliveries == delivery
        assert await consumer.retry([message.id], f"failure {delivery}") == 1
    assert await consumer.read(10, 0) == []
    [letter] = (await stream.dead_letters.page()).letters
    assert (letter.deliveries, letter.reason, letter.fields) == (3, "failure 3", {b"n": b"1", b"x": b"\xff"})
    assert letter.message_id == message.id


async def test_a_message_without_a_handler_is_a_dead_letter_immediately(stream: Stream):
    await stream.add(numbered([1]))
    consumer = stream.consumer("a")
    [message] = await consumer.read(10, 0)
    assert await consumer.fail(message, "no such user")
    assert not await consumer.fail(message, "no such user"), "it is no longer ours"
    [letter] = (await stream.dead_letters.page()).letters
    assert (letter.deliveries, letter.reason) == (1, "no such user")
    assert (await stream.status())[:4] == (0, 0, 0, 1)


async def test_naming_a_message_twice_returns_it_once(stream: Stream):
    await stream.add(numbered([1]))
    consumer = stream.consumer("a")
    [message] = await consumer.read(10, 0)
    assert await consumer.retry([message.id, message.id], "again") == 1
    assert (await stream.status()).depth == 1


async def test_a_consumer_cannot_reject_messages_of_another(stream: Stream):
    await stream.add(numbered([1]))
    [message] = await stream.consumer("a").read(10, 0)
    assert await stream.retry("b", [message.id], "not mine") == 0
    assert await stream.fail("b", [message.id], "not mine") == 0
    assert (await stream.status())[:4] == (1, 1, 0, 0)


async def test_a_very_long_reason_is_truncated(stream: Stream):
    await stream.add(numbered([1]))
    consumer = stream.consumer("a")
    [message] = await consumer.read(10, 0)
    await consumer.fail(message, "x" * 1_000_000)
    [letter] = (await stream.dead_letters.page()).letters
    assert letter.reason == "x" * 2000


# taking over


async def test_all_consumers_of_a_dead_process_are_emptied_and_removed(stream: Stream):
    await stream.add(numbered(range(330)))
    await stream.consumer("dead").read(250, 0)
    await stream.consumer("dead", "2").read(30, 0)
    await stream.consumer("deadly").read(20, 0)
    assert await stream.take_over("dead") == 280
    status = await stream.status()
    assert status[:3] == (330, 20, 310)
    assert [each.name for each in status.consumers] == ["deadly"], "whose name only begins alike"
    taken = await stream.consumer("alive").read(1000, 0)
    assert sorted(numbers(taken)) == [*range(280), *range(300, 330)]
    assert {message.deliveries for message in taken if int(message.fields[b"n"]) < 280} == {2}
    assert {message.deliveries for message in taken if int(message.fields[b"n"]) >= 300} == {1}


async def test_a_takeover_wakes_a_reader_that_waits(stream: Stream, valkey: Valkey):
    await stream.add(numbered([1]))
    await stream.consumer("dead").read(1, 0)
    waiting = asyncio.create_task(stream.consumer("alive").read(10, 30))
    await until_blocked(valkey, stream.keys.stream)
    await stream.take_over("dead")
    assert numbers(await waiting) == [1]


async def test_nothing_is_taken_over_from_a_process_without_messages(stream: Stream):
    assert await stream.take_over("nobody") == 0, "not even a stream is there"
    await stream.add(numbered([1]))
    consumer = stream.consumer("w")
    await consumer.ack(ids(await consumer.read(1, 0)))
    assert await stream.take_over("w") == 0
    assert (await stream.status()).consumers == []


async def test_a_message_that_killed_three_processes_is_a_dead_letter(stream: Stream):
    await stream.add(numbered([1]))
    for life in ("a", "b", "c"):
        assert len(await stream.consumer(life).read(1, 0)) == 1
        assert await stream.take_over(life) == 1
    [letter] = (await stream.dead_letters.page()).letters
    assert (letter.deliveries, letter.reason) == (3, "the process that held it died")
    assert (await stream.status()).depth == 0


async def test_a_frozen_worker_that_resumes_changes_nothing(stream: Stream):
    """It was believed dead, and its message is with another."""
    await stream.add(numbered([1]))
    frozen = stream.consumer("frozen")
    [old] = await frozen.read(1, 0)
    await stream.take_over("frozen")
    alive = stream.consumer("alive")
    [new] = await alive.read(1, 0)
    assert await frozen.ack([old.id]) == 0
    assert await frozen.retry([old.id], "late") == 0
    assert not await frozen.fail(old, "late")
    assert await frozen.leave() == 0
    assert (await stream.status())[:4] == (1, 1, 0, 0)
    assert await alive.ack([new.id]) == 1


# the second net


async def test_a_message_held_too_long_goes_to_others(stream: Stream, valkey: Valkey):
    await stream.add(numbered([1, 2]))
    [stale, _] = await stream.consumer("slow").read(2, 0)
    await grow_old(valkey, stream, "slow", stale.id, LONG_AGO)
    await stream.sweep_idle()
    [again] = await stream.consumer("quick").read(10, 0)
    assert (numbers([again]), again.deliveries) == ([1], 2)


async def test_the_sweep_reports_when_the_next_message_can_be_due(stream: Stream, valkey: Valkey):
    assert await stream.sweep_idle() == 300_000, "nothing is held: what is delivered from now on has that long"
    await stream.add(numbered([1, 2, 3]))
    held = await stream.consumer("slow").read(3, 0)
    await grow_old(valkey, stream, "slow", held[1].id, timedelta(minutes=4))
    assert 50_000 < await stream.sweep_idle() <= 60_000
    assert (await stream.status()).pending == 3
    assert 170_000 < await stream.sweep_idle(timedelta(minutes=3)) <= 180_000
    assert (await stream.status()).pending == 2


async def test_the_sweep_reads_beyond_its_first_page(stream: Stream, valkey: Valkey):
    await stream.add(numbered(range(250)))
    held = await stream.consumer("slow").read(250, 0)
    for n in (0, 120, 249):
        await grow_old(valkey, stream, "slow", held[n].id, LONG_AGO)
    await grow_old(valkey, stream, "slow", held[240].id, timedelta(minutes=4))
    assert 50_000 < await stream.sweep_idle() <= 60_000
    assert numbers(await stream.consumer("quick").read(1000, 0)) == [0, 120, 249]


async def test_a_message_that_stalls_three_times_is_a_dead_letter(stream: Stream):
    await stream.add(numbered([1]))
    for life in ("a", "b", "c"):
        assert len(await stream.consumer(life).read(1, 0)) == 1
        await stream.sweep_idle(timedelta(0))
    [letter] = (await stream.dead_letters.page()).letters
    assert (letter.deliveries, letter.reason) == (3, "it was not acknowledged in time")


# nonsense


@pytest.mark.parametrize(
    ("messages", "about"),
    [
        ([{}], "at least one field"),
        ([{b"deliveries": b"1"}], "uses itself"),
        ([{b"dead.reason": b"1"}], "uses itself"),
        ([{b"n": "text"}], "must be bytes"),
        ([{"n": b"1"}], "must be bytes"),
        ([{b"%d" % n: b"" for n in range(501)}], "at most 500"),
    ],
)
async def test_an_invalid_message_is_refused_and_nothing_is_added(stream: Stream, messages: Any, about: str):
    with pytest.raises(InvalidArgument, match=about):
        await stream.add([*numbered(range(150)), *messages])
    assert (await stream.status()).depth == 0


async def test_invalid_arguments_are_refused_by_name(stream: Stream):
    consumer = stream.consumer("w")
    for name, call in [
        ("count", consumer.read(0, 1)),
        ("count", consumer.read(1001, 1)),
        ("within_s", consumer.read(1, -1)),
        ("within_s", consumer.read(1, 1e9)),
        ("id", consumer.ack(["1-1", "7"])),
        ("id", consumer.ack(["*"])),
        ("reason", consumer.retry(["1-1"], "")),
        ("reason", stream.fail("w", ["1-1"], "")),
        ("token", stream.add(numbered([1]), token="")),
        ("idle_limit", stream.sweep_idle(timedelta(seconds=-1))),
        ("owner", stream.take_over("a/b")),
        ("owner", stream.take_over("")),
        ("limit", stream.dead_letters.page(limit=0)),
        ("limit", stream.dead_letters.page(limit=1001)),
        ("after", stream.dead_letters.page(after="x")),
        ("letter_id", stream.dead_letters.get("-")),
        ("id", stream.dead_letters.replay(["+"])),
        ("id", stream.dead_letters.remove(["1-1 2-2"])),
    ]:
        with pytest.raises(InvalidArgument, match=f"^{name} "):
            await call
