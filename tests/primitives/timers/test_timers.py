import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.primitives.wakeup.waiters import until_blocked
from tests.waiting import patience
from tidegate.core.clock import ManualClock, from_ms, to_ms
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.timers import Timer, Timers, TimerSettings, TimersStatus
from tidegate.storage.valkey import Unit, Valkey

SECOND = timedelta(seconds=1)


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit("jobs")


@pytest.fixture
def timers(valkey: Valkey, unit: Unit, clock: ManualClock) -> Timers:
    return Timers(valkey, unit, unit.key("stream"), clock=clock, settings=TimerSettings(promoted_at_once=3))


async def messages(valkey: Valkey, timers: Timers) -> list[dict[bytes, bytes]]:
    entries: list[Any] = await valkey.execute("XRANGE", timers.stream, "-", "+")
    return [_fields(entry[1]) for entry in entries]


def _fields(fields: Any) -> dict[bytes, bytes]:
    return fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))


async def promoted(valkey: Valkey, timers: Timers) -> list[str]:
    return [message[b"timer"].decode() for message in await messages(valkey, timers)]


async def was_rung(valkey: Valkey, timers: Timers) -> bool:
    return await valkey.execute("LPOP", timers.keys.wake) is not None


async def test_a_timer_becomes_a_message_when_its_delay_is_over_and_not_before(
    timers: Timers, valkey: Valkey, clock: ManualClock
):
    await timers.schedule("a", 5 * SECOND, b"\x00\xff what to do")
    due_ms = to_ms(clock.now() + 5 * SECOND)

    clock.advance(timedelta(milliseconds=4999))
    assert await timers.fire() == 1
    assert await messages(valkey, timers) == []

    clock.advance(timedelta(milliseconds=1))
    assert await timers.fire() is None
    assert await messages(valkey, timers) == [
        {b"timer": b"a", b"due_ms": str(due_ms).encode(), b"payload": b"\x00\xff what to do"}
    ]


async def test_a_timer_fires_once(timers: Timers, valkey: Valkey):
    await timers.schedule("a", timedelta(0))
    for _ in range(3):
        assert await timers.fire() is None
    assert await promoted(valkey, timers) == ["a"]


async def test_due_times_are_compared_with_the_clock_of_the_server(valkey: Valkey, unit: Unit):
    """Not with the caller's, which may be wrong: here its hand is an hour off, and nobody asks it."""
    timers = Timers(valkey, unit, unit.key("stream"))
    seconds, microseconds = await valkey.execute("TIME")
    now = from_ms(int(seconds) * 1000 + int(microseconds) // 1000)
    await timers.schedule("soon", now + timedelta(minutes=5))
    next_in_ms = await timers.fire()
    assert next_in_ms is not None
    assert 295_000 < next_in_ms <= 300_000


async def test_a_due_time_in_the_past_is_due_immediately(timers: Timers, valkey: Valkey, clock: ManualClock):
    await timers.schedule("late", clock.now() - timedelta(days=3))
    assert await timers.fire() is None
    assert await promoted(valkey, timers) == ["late"]


async def test_equal_times_in_other_time_zones_are_equal(timers: Timers, clock: ManualClock):
    await timers.schedule("a", (clock.now() + SECOND).astimezone(timezone(timedelta(hours=9))))
    assert await timers.status() == TimersStatus(1, clock.now() + SECOND)


async def test_fractions_of_a_millisecond_are_rounded_up_so_that_no_timer_is_early(timers: Timers, clock: ManualClock):
    await timers.schedule("delay", timedelta(microseconds=1001))
    await timers.schedule("moment", clock.now() + timedelta(seconds=1, microseconds=1))
    assert await timers.fire() == 2
    await timers.cancel("delay")
    assert await timers.fire() == 1001


async def test_a_delay_counts_from_the_end_of_the_current_server_millisecond(valkey: Valkey, unit: Unit):
    """Its clock is read in whole ms: a delay counted from the beginning of one would end up to 1 ms too soon."""
    timers = Timers(valkey, unit, unit.key("stream"))
    for _ in range(30):  # each at another part of a ms
        before_us = await _server_us(valkey)
        await timers.schedule("a", 100 * SECOND)
        after_us = await _server_us(valkey)
        earliest = (await timers.status()).earliest
        assert earliest is not None
        heard_ms = to_ms(earliest) - 100_000
        assert before_us / 1000 <= heard_ms <= after_us / 1000 + 1


async def _server_us(valkey: Valkey) -> int:
    seconds, microseconds = await valkey.execute("TIME")
    return int(seconds) * 1_000_000 + int(microseconds)


async def test_due_timers_are_promoted_in_batches_earliest_first(timers: Timers, valkey: Valkey, clock: ManualClock):
    await timers.schedule_many([Timer(f"t{n}", (7 - n) * SECOND) for n in range(7)])
    clock.advance(6 * SECOND)

    assert await timers.fire() == 0, "more is due"
    assert await promoted(valkey, timers) == ["t6", "t5", "t4"]
    assert await timers.fire() == 1000
    assert await promoted(valkey, timers) == ["t6", "t5", "t4", "t3", "t2", "t1"]


async def test_scheduling_an_id_again_replaces_due_time_and_payload(timers: Timers, valkey: Valkey, clock: ManualClock):
    assert await timers.schedule_many([Timer("a", SECOND, b"old")]) == 1
    assert await timers.schedule_many([Timer("a", 10 * SECOND, b"new")]) == 0
    clock.advance(5 * SECOND)
    assert await timers.fire() == 5000
    clock.advance(5 * SECOND)
    await timers.fire()
    assert [message[b"payload"] for message in await messages(valkey, timers)] == [b"new"]


async def test_of_two_timers_with_one_id_in_a_batch_the_last_counts(timers: Timers, clock: ManualClock):
    assert await timers.schedule_many([Timer("a", SECOND), Timer("a", 9 * SECOND)]) == 1
    assert await timers.status() == TimersStatus(1, clock.now() + 9 * SECOND)


async def test_a_cancelled_timer_never_fires_and_leaves_no_keys(timers: Timers, valkey: Valkey, clock: ManualClock):
    await timers.schedule_many([Timer("a", SECOND, b"x"), Timer("b", SECOND, b"x"), Timer("c", SECOND, b"x")])
    assert await timers.cancel("a") == 1
    assert await timers.cancel("a", "b", "unknown") == 1
    assert await timers.cancel() == 0
    clock.advance(SECOND)
    await timers.fire()
    assert await promoted(valkey, timers) == ["c"]
    assert await valkey.execute("EXISTS", timers.keys.due, timers.keys.payloads) == 0


async def test_a_moved_timer_keeps_its_payload(timers: Timers, valkey: Valkey, clock: ManualClock):
    await timers.schedule("a", SECOND, b"kept")
    assert await timers.reschedule("a", 3 * SECOND)
    clock.advance(SECOND)
    assert await timers.fire() == 2000
    clock.advance(2 * SECOND)
    await timers.fire()
    assert [message[b"payload"] for message in await messages(valkey, timers)] == [b"kept"]


async def test_only_existing_timers_can_be_moved(timers: Timers, clock: ManualClock):
    assert not await timers.reschedule("a", SECOND)
    await timers.schedule("a", timedelta(0))
    await timers.fire()
    assert not await timers.reschedule("a", SECOND)
    assert await timers.status() == TimersStatus(0, None)


async def test_a_timer_whose_payload_was_lost_does_not_delay_the_others(timers: Timers, valkey: Valkey):
    await timers.schedule_many([Timer("a", timedelta(0), b"x"), Timer("b", timedelta(0), b"y")])
    await valkey.execute("HDEL", timers.keys.payloads, "a")
    await timers.fire()
    assert [message[b"payload"] for message in await messages(valkey, timers)] == [b"", b"y"]


async def test_the_status_has_the_number_of_timers_and_the_next_due_time(timers: Timers, clock: ManualClock):
    assert await timers.status() == TimersStatus(0, None)
    await timers.schedule_many([Timer("a", 2 * SECOND), Timer("b", SECOND)])
    assert await timers.status() == TimersStatus(2, clock.now() + SECOND)


async def test_only_a_timer_earlier_than_all_others_sends_a_wake_up(timers: Timers, valkey: Valkey):
    await timers.schedule("first", 10 * SECOND)
    assert await was_rung(valkey, timers)
    await timers.schedule("later", 11 * SECOND)
    assert not await was_rung(valkey, timers)
    await timers.schedule("earlier", 9 * SECOND)
    assert await was_rung(valkey, timers)
    await timers.schedule_many([Timer("x", 20 * SECOND), Timer("y", 8 * SECOND), Timer("z", 30 * SECOND)])
    assert await was_rung(valkey, timers)


async def test_moving_a_timer_to_the_front_sends_a_wake_up(timers: Timers, valkey: Valkey):
    await timers.schedule_many([Timer("a", 10 * SECOND), Timer("b", 20 * SECOND)])
    assert await was_rung(valkey, timers)
    await timers.reschedule("b", 15 * SECOND)
    assert not await was_rung(valkey, timers)
    await timers.reschedule("b", 5 * SECOND)
    assert await was_rung(valkey, timers)
    await timers.reschedule("b", 30 * SECOND)
    assert not await was_rung(valkey, timers), "who sleeps until the former time wakes for nothing, once"


async def test_a_wake_up_between_firing_and_waiting_is_not_lost(timers: Timers):
    assert await timers.fire() is None
    await timers.schedule("just now", SECOND)  # the keeper has looked already, and does not wait yet
    assert await timers.wakeup.wait(60)
    assert await timers.fire() == 1000


async def test_a_waiting_service_is_woken_by_an_earlier_timer(timers: Timers, valkey: Valkey):
    await timers.schedule("far", 100 * SECOND)
    assert await timers.wakeup.wait(60)
    waiting = asyncio.create_task(timers.wakeup.wait(30))
    await until_blocked(valkey, timers.keys.wake)
    await timers.schedule("near", SECOND)
    async with patience():
        assert await waiting


async def test_two_sets_of_one_unit_are_independent(timers: Timers, valkey: Valkey, unit: Unit, clock: ManualClock):
    other = Timers(valkey, unit, unit.key("other-stream"), name="other", clock=clock)
    await timers.schedule("a", timedelta(0))
    assert await other.fire() is None
    assert await timers.cancel("a") == 1


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the point of the test


@pytest.mark.parametrize(
    ("timer_id", "due", "payload", "named"),
    [
        ("", SECOND, b"", "timer_id"),
        ("a|b", SECOND, b"", "timer_id"),
        ("x" * 513, SECOND, b"", "timer_id"),
        ("a", -SECOND, b"", "due"),
        ("a", timedelta.max, b"", "due"),
        ("a", NAIVE, b"", "due"),
        ("a", datetime(1969, 12, 31, tzinfo=UTC), b"", "due"),
        ("a", SECOND, b"x" * 1_048_577, "payload"),
    ],
)
async def test_invalid_arguments_are_refused_by_name(
    timers: Timers, timer_id: str, due: Any, payload: bytes, named: str
):
    with pytest.raises(InvalidArgument, match=named):
        await timers.schedule(timer_id, due, payload)
    assert await timers.status() == TimersStatus(0, None)


async def test_invalid_arguments_of_move_and_cancel_are_refused(timers: Timers):
    for refused in (timers.reschedule("", SECOND), timers.reschedule("a", -SECOND), timers.cancel("a", "")):
        with pytest.raises(InvalidArgument):
            await refused


async def test_an_unbounded_batch_is_refused(timers: Timers):
    with pytest.raises(InvalidArgument, match=r"len\(timers\)"):
        await timers.schedule_many([Timer("a", SECOND)] * 10_001)
    assert await timers.schedule_many([]) == 0


def test_a_stream_of_another_unit_is_refused(valkey: Valkey, unit: Unit):
    with pytest.raises(InvalidArgument, match="stream"):
        Timers(valkey, unit, valkey.unit("elsewhere").key("stream"))
