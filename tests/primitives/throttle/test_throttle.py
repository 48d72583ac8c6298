"""The throttle: bursts, refill, items counted once, bounded memory, and many callers at once."""

import asyncio
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.core.ids import new_id
from tidegate.primitives.throttle import Throttle, ThrottleKeys
from tidegate.storage.valkey import Valkey

TEN = timedelta(seconds=10)


def throttle_of(valkey: Valkey, clock: ManualClock, name: str = "t", **more: int) -> Throttle:
    return Throttle(valkey, name, burst=3, interval=TEN, clock=clock, **more)


async def test_a_subject_has_its_burst_and_then_one_item_per_interval(valkey: Valkey, clock: ManualClock):
    throttle, item = throttle_of(valkey, clock), count()

    async def take(subject: str = "a") -> float | None:
        wait = await throttle.take(subject, str(next(item)))
        return None if wait is None else wait.total_seconds()

    assert [await take() for _ in range(4)] == [None, None, None, 10]
    assert await take("b") is None
    clock.advance(timedelta(seconds=4))
    assert await take() == 6
    clock.advance(timedelta(seconds=6))
    assert [await take() for _ in range(2)] == [None, 10]
    clock.advance(timedelta(minutes=1))
    assert [await take() for _ in range(4)] == [None, None, None, 10]


async def test_an_item_is_counted_once_and_can_be_returned_once(valkey: Valkey, clock: ManualClock):
    throttle = throttle_of(valkey, clock)
    assert [await throttle.take("a", "same") for _ in range(10)] == [None] * 10
    assert [await throttle.take("a", item) for item in "xyz"] == [None, None, TEN]

    assert [await throttle.give_back("a", "x"), await throttle.give_back("a", "x")] == [True, False]
    assert await throttle.give_back("b", "unknown") is False
    assert [await throttle.take("a", item) for item in "vw"] == [None, TEN]


async def test_memory_is_bounded_and_expires(embedded: Valkey, clock: ManualClock):
    throttle, keys = throttle_of(embedded, clock, "bounded", most_subjects=50), ThrottleKeys(embedded, "bounded")
    for n in range(200):
        await throttle.take(f"address-{n}", str(n))

    for key in (keys.subjects, keys.items):
        assert await embedded.execute("ZCARD", key) == 50
        assert 0 < await embedded.execute("PTTL", key) <= 30_000
    clock.advance(TEN)
    await throttle.take("another", "200")
    assert await embedded.execute("ZRANGE", keys.subjects, 0, -1) == [b"another"]


async def test_a_clock_that_was_set_back_blocks_no_longer_than_an_empty_allowance(embedded: Valkey):
    later, now = ManualClock(), ManualClock()
    later.advance(timedelta(days=1))
    for n in range(3):
        await throttle_of(embedded, later, "back").take("a", str(n))

    assert await throttle_of(embedded, now, "back").take("a", "x") == TEN


async def test_callers_of_several_processes_share_one_allowance(embedded: Valkey, clock: ManualClock):
    throttles = [throttle_of(embedded, clock, "shared") for _ in range(4)]

    waits = await asyncio.gather(*(throttles[n % 4].take("a", str(n)) for n in range(40)))

    assert waits.count(None) == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 25)), max_size=40))
async def test_no_window_exceeds_the_allowance(embedded: Valkey, tries: list[tuple[str, int]]):
    clock, name, granted = ManualClock(), new_id(), dict[str, list[int]]()
    throttle, now_s = throttle_of(embedded, clock, name), 0
    for n, (subject, pause_s) in enumerate(tries):
        clock.advance(timedelta(seconds=pause_s))
        now_s += pause_s
        if await throttle.take(subject, str(n)) is None:
            granted.setdefault(subject, []).append(now_s)

    for times in granted.values():
        for first, start in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= 3 + (times[last] - start) / 10


def test_an_allowance_of_zero_is_refused(embedded_url: str):
    valkey = Valkey(embedded_url)
    for burst, interval in ((0, TEN), (3, timedelta(0))):
        with pytest.raises(InvalidArgument):
            Throttle(valkey, "t", burst=burst, interval=interval)
