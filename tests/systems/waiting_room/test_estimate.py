"""The estimate is an interval from what was measured, and nothing while nothing was."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.migrated import migrated_file
from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors, open_signer
from tidegate.core.clock import SystemClock
from tidegate.core.errors import InvalidArgument
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import RoomPlan, WaitingRooms
from tidegate.systems.waiting_room.line import Estimate, LineMove, measure_pace

EVEN = [LineMove(second * 1000, 10) for second in range(61)]


def estimate_wait(moves: Sequence[LineMove], ahead: int, now_ms: int) -> Estimate | None:
    pace = measure_pace(moves, now_ms)
    return None if pace is None else pace.wait(ahead)


def test_without_two_moves_of_the_line_there_is_no_estimate():
    assert estimate_wait([], 5, 1000) is None
    assert estimate_wait([LineMove(0, 10)], 5, 1000) is None


def test_a_line_that_last_moved_long_ago_has_a_very_long_estimate_and_no_error():
    year_ms = 365 * 86_400_000

    found = estimate_wait([LineMove(0, 1), LineMove(1000, 1)], 999_999, year_ms)

    assert found is not None
    assert found.latest == timedelta(days=365)


def test_a_line_that_moves_evenly_is_estimated_closely():
    """Ten a second: 999 before me are 100 seconds."""
    found = estimate_wait(EVEN, 999, 60_000)

    assert found is not None
    assert found.soonest < timedelta(seconds=100) < found.latest
    assert found.latest - found.soonest < timedelta(seconds=15)


def test_a_line_that_has_slowed_down_has_a_wider_estimate():
    slower = [*EVEN, *(LineMove(60_000 + 10_000 * n, 10) for n in range(1, 20))]
    found = estimate_wait(slower, 999, 250_000)

    assert found is not None
    assert found.soonest < timedelta(seconds=350)
    assert found.latest > timedelta(seconds=1000)


def test_the_estimate_of_a_stopped_line_grows_with_time():
    waits = [estimate_wait(EVEN, 10, now_ms) for now_ms in (60_000, 120_000, 600_000)]

    latest = [wait.latest for wait in waits if wait is not None]
    assert latest == sorted(latest)
    assert latest[2] > 5 * latest[0]


@given(ahead=st.integers(0, 10**7), counts=st.lists(st.integers(0, 100), min_size=2, max_size=128))
def test_the_estimate_is_an_interval_and_grows_with_the_number_ahead(ahead: int, counts: list[int]):
    moves = [LineMove(n * 1500, count) for n, count in enumerate(counts)]
    found, further = (estimate_wait(moves, each, 10**6) for each in (ahead, ahead + 1))

    if found is not None and further is not None:
        assert timedelta(0) <= found.soonest <= found.latest
        assert found.soonest <= further.soonest


def test_when_visitors_only_leave_the_line_there_is_no_estimate():
    """The visitors that left may all have been behind."""
    assert estimate_wait([LineMove(second * 1000, 0, 10) for second in range(60)], 999, 60_000) is None


def test_visitors_who_left_may_have_been_ahead_or_behind():
    """Ten a second came in, ten gave up: 999 before me are 50 seconds at best, and 100 at worst."""
    found = estimate_wait([LineMove(second * 1000, 10, 10) for second in range(61)], 999, 60_000)

    assert found is not None
    assert timedelta(seconds=45) < found.soonest < timedelta(seconds=50)
    assert timedelta(seconds=100) < found.latest < timedelta(seconds=110)


def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidArgument):
        estimate_wait(EVEN, -1, 60_000)


async def test_a_room_estimates_from_its_own_moves(harness: RoomHarness):
    room = await harness.open(capacity=100, admit_per_second=2)
    await add_visitors(room, *(f"user-{n}" for n in range(40)))
    assert await room.estimate(10) is None
    for _ in range(10):
        await harness.run_worker()
        harness.clock.advance(timedelta(seconds=1))

    found = await room.estimate(19)

    assert found is not None
    assert found.soonest < timedelta(seconds=10) < found.latest
    assert found.latest < timedelta(seconds=20)


@pytest.mark.full
async def test_many_single_departures_do_not_hide_the_admission_rate(harness: RoomHarness):
    room = await harness.open(capacity=100, admit_per_second=2)
    passes = await add_visitors(room, *(f"user-{n:03}" for n in range(400)))
    for second in range(10):
        await harness.run_worker()
        harness.clock.advance(timedelta(seconds=1))
        for token in passes[-40 * (second + 1) : len(passes) - 40 * second][-30:]:
            await room.leave(token)

    found = await room.estimate(19)

    assert found is not None
    assert timedelta(seconds=10) < found.latest < timedelta(seconds=20)


async def test_only_the_clock_of_the_server_determines_the_rate(
    tmp_path: Path, embedded: Valkey, monkeypatch: pytest.MonkeyPatch
):
    """That of the process may be ahead of it, or behind."""
    clock = SystemClock()
    async with (
        await Database.open(await migrated_file(tmp_path / "rooms.db"), clock=clock) as database,
    ):
        rooms = WaitingRooms(embedded, database, open_signer)
        await rooms.create(ROOM, RoomPlan(capacity=100, admit_per_second=1000))
        room = await rooms.open(ROOM)
        for n in range(4):
            await add_visitors(room, *(f"user-{n}-{m}" for m in range(3)))
            await room.admitter.admit()
        monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) - timedelta(minutes=1))

        found = await room.estimate(0)

        assert found is not None
        assert found.latest < timedelta(seconds=30)
