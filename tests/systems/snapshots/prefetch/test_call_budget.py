"""The target rate of each hour, and the daily budget."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument
from tidegate.systems.snapshots.prefetch.budget import CallBudget
from tidegate.systems.snapshots.settings import PrefetchSettings

SEOUL = ZoneInfo("Asia/Seoul")
MIDNIGHT = datetime(2026, 11, 15, tzinfo=SEOUL)


def hours(**given: object) -> CallBudget:
    return CallBudget(PrefetchSettings.model_validate({"timezone": "Asia/Seoul", **given}))


@pytest.mark.parametrize(
    ("hour", "minute", "target"), [(0, 0, 250), (18, 59, 250), (19, 0, 150), (22, 59, 150), (23, 0, 250)]
)
def test_the_evening_in_the_configured_time_zone_has_a_lower_target(hour: int, minute: int, target: float):
    now = MIDNIGHT.replace(hour=hour, minute=minute).astimezone(UTC)

    assert hours().target(now) == target
    assert hours(daily_budget=10**9).rate(now, 0) == target


def test_a_day_has_twenty_hours_of_the_day_target_and_four_of_the_evening_target():
    day = hours()

    assert day.capacity(MIDNIGHT, day.next_day(MIDNIGHT)) == 20 * 3600 * 250 + 4 * 3600 * 150


@pytest.mark.parametrize(("day", "length_h"), [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 6, 1), 24)])
def test_a_day_with_a_clock_change_has_its_real_length(day: tuple[int, int, int], length_h: int):
    berlin = CallBudget(PrefetchSettings(timezone="Europe/Berlin"))
    begin = datetime(*day, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)

    assert berlin.next_day(begin) - begin == timedelta(hours=length_h)
    assert berlin.capacity(begin, berlin.next_day(begin)) == ((length_h - 4) * 250 + 4 * 150) * 3600


def test_a_spent_budget_allows_no_call():
    assert hours(daily_budget=100).rate(MIDNIGHT, 100) == 0
    assert hours(daily_budget=100).rate(MIDNIGHT, 200) == 0
    assert hours(daily_budget=0).rate(MIDNIGHT, 0) == 0
    with pytest.raises(InvalidArgument):
        hours().rate(MIDNIGHT, -1)


@given(
    budget=st.integers(1, 25_000_000),
    begin_h=st.floats(0, 23.5),
    steps=st.lists(st.floats(1, 1800), min_size=1, max_size=60),
)
def test_calls_at_the_rate_exceed_neither_budget_nor_target(budget: int, begin_h: float, steps: list[float]):
    day = hours(daily_budget=budget)
    at, ends = MIDNIGHT + timedelta(hours=begin_h), day.next_day(MIDNIGHT)
    spent = 0.0
    for seconds in steps:
        rate = day.rate(at, int(spent))
        assert 0 <= rate <= day.target(at)
        step = min(seconds, (ends - at).total_seconds())
        # No longer than the target lasts: a planner asks anew many times in a second.
        step = min(step, (-(at.timestamp()) % 900) or 900)
        spent += rate * step
        at += timedelta(seconds=step)

    assert spent <= budget + 1


def test_a_scarce_budget_is_distributed_over_the_day_in_proportion_to_the_targets():
    day, spent, by_hour = hours(daily_budget=1_000_000), 0.0, dict[int, float]()
    for minute in range(24 * 60):
        now = MIDNIGHT + timedelta(minutes=minute)
        calls = day.rate(now, int(spent)) * 60
        by_hour[day.hour_of(now)] = by_hour.get(day.hour_of(now), 0) + calls
        spent += calls

    assert spent == pytest.approx(1_000_000, rel=1e-3)
    assert by_hour[3] == pytest.approx(by_hour[17], rel=0.01)
    assert by_hour[20] == pytest.approx(by_hour[3] * 150 / 250, rel=0.01)
