"""The estimate is an interval from what was measured, and nothing while nothing was."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crowd.waiting_room.venue import Venue, come
from tidegate.crowd.waiting_room.estimate import Move, estimate_wait
from tidegate.kernel.errors import InvalidArgument

EVEN = [Move(second * 1000, 10) for second in range(61)]


def test_nobody_knows_before_the_line_has_moved_twice():
    assert estimate_wait([], 5, 1000) is None
    assert estimate_wait([Move(0, 10)], 5, 1000) is None


def test_a_line_that_moves_evenly_is_estimated_closely():
    """Ten a second: 999 before me are 100 seconds."""
    found = estimate_wait(EVEN, 999, 60_000)

    assert found is not None
    assert found.soonest < timedelta(seconds=100) < found.latest
    assert found.latest - found.soonest < timedelta(seconds=15)


def test_a_line_that_has_slowed_down_is_estimated_more_widely():
    slower = [*EVEN, *(Move(60_000 + 10_000 * n, 10) for n in range(1, 20))]
    found = estimate_wait(slower, 999, 250_000)

    assert found is not None
    assert found.soonest < timedelta(seconds=350)
    assert found.latest > timedelta(seconds=1000)


def test_a_line_that_stands_still_takes_longer_the_longer_it_does():
    waits = [estimate_wait(EVEN, 10, now_ms) for now_ms in (60_000, 120_000, 600_000)]

    latest = [wait.latest for wait in waits if wait is not None]
    assert latest == sorted(latest)
    assert latest[2] > 5 * latest[0]


@given(ahead=st.integers(0, 10**7), counts=st.lists(st.integers(0, 100), min_size=2, max_size=128))
def test_the_interval_is_one_and_grows_with_those_ahead(ahead: int, counts: list[int]):
    moves = [Move(n * 1500, count) for n, count in enumerate(counts)]
    found, further = (estimate_wait(moves, each, 10**6) for each in (ahead, ahead + 1))

    if found is not None and further is not None:
        assert timedelta(0) <= found.soonest <= found.latest
        assert found.soonest <= further.soonest


def test_nonsense_is_refused():
    with pytest.raises(InvalidArgument):
        estimate_wait(EVEN, -1, 0)


async def test_a_room_estimates_from_its_own_moves(venue: Venue):
    room = await venue.open(capacity=100, admit_per_second=2)
    await come(room, *(f"user-{n}" for n in range(40)))
    assert await room.estimate(10) is None
    for _ in range(10):
        await venue.keep()
        venue.clock.advance(timedelta(seconds=1))

    found = await room.estimate(19)

    assert found is not None
    assert found.soonest < timedelta(seconds=10) < found.latest
    assert found.latest < timedelta(seconds=20)
