"""Days, weeks, streaks and percentiles."""

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.systems.github.statistics.oracle import all_streaks, times
from tidegate.systems.github.statistics import Durations, Streak
from tidegate.systems.github.statistics.counts import (
    current_streak,
    durations,
    last_weeks,
    longest_streak,
    monday_of,
    week_name,
)
from tidegate.systems.github.statistics.statistics import DayRange, day_of, month_of, week_of


def days(*texts: str) -> list[int]:
    return [date.fromisoformat(text).toordinal() for text in texts]


def streak(first: str, last: str) -> Streak:
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    return Streak(days=(end - begin).days + 1, first=begin, last=end)


(TODAY,) = days("2026-03-05")


def test_a_streak_continues_over_leap_days_and_new_year():
    assert longest_streak(days("2024-02-28", "2024-02-29", "2024-03-01")) == streak("2024-02-28", "2024-03-01")
    assert longest_streak(days("2023-02-28", "2023-03-01")) == streak("2023-02-28", "2023-03-01")
    assert longest_streak(days("2025-12-31", "2026-01-01")) == streak("2025-12-31", "2026-01-01")
    assert longest_streak(days("2024-02-28", "2024-03-01")) == streak("2024-02-28", "2024-02-28")


def test_the_earliest_of_the_longest_streaks_is_returned():
    found = longest_streak(days("2026-01-05", "2026-01-06", "2026-01-01", "2026-01-02", "2026-01-09"))

    assert found == streak("2026-01-01", "2026-01-02")


@pytest.mark.parametrize(
    ("active", "expected"),
    [
        (days("2026-03-05"), streak("2026-03-05", "2026-03-05")),
        (days("2026-03-04", "2026-03-03"), streak("2026-03-03", "2026-03-04")),
        (days("2026-03-05", "2026-03-04"), streak("2026-03-04", "2026-03-05")),
        (days("2026-03-03"), Streak()),
        (days("2026-03-06"), Streak()),
        ([], Streak()),
    ],
    ids=["today", "up to yesterday", "both", "over", "not yet", "never"],
)
def test_the_current_streak_includes_yesterday_while_today_is_not_over(active: list[int], expected: Streak):
    assert current_streak(active, TODAY) == expected


@settings(deadline=None)
@given(st.sets(st.integers(738_000, 738_040)))
def test_streaks_equal_a_naive_computation(active: set[int]):
    seen = all_streaks([date.fromordinal(day) for day in sorted(active)])
    most = max((each.days for each in seen), default=0)
    assert longest_streak(active) == next((each for each in seen if each.days == most), Streak())
    today = 738_041
    current = [each for each in seen if each.last in (date.fromordinal(today), date.fromordinal(today - 1))]
    assert current_streak(active, today) == (current[0] if current else Streak())


@pytest.mark.parametrize(
    ("day", "week"),
    [
        ("2024-12-29", "2024-W52"),
        ("2024-12-30", "2025-W01"),
        ("2026-12-31", "2026-W53"),
        ("2027-01-03", "2026-W53"),
        ("2027-01-04", "2027-W01"),
        ("2021-01-01", "2020-W53"),
    ],
)
def test_a_week_belongs_to_the_year_of_its_thursday(day: str, week: str):
    assert week_name(*days(day)) == week


@settings(deadline=None)
@given(st.dates())
def test_every_day_is_in_the_week_of_its_monday(day: date):
    monday = date.fromordinal(monday_of(day.toordinal()))

    assert monday.weekday() == 0
    assert timedelta() <= day - monday < timedelta(days=7)


def test_the_last_weeks_are_53_and_end_with_the_current_one():
    commits = dict.fromkeys(days("2026-03-02", "2026-03-05", "2026-03-06", "2025-03-03", "2025-03-02"), 2)

    weeks = last_weeks(commits, TODAY)

    assert len(weeks) == 53
    assert (weeks[-1].week, weeks[-1].first, weeks[-1].commits) == ("2026-W10", date(2026, 3, 2), 4)
    assert (weeks[0].week, weeks[0].commits) == ("2025-W10", 2)
    assert sum(week.commits for week in weeks) == 6


def test_the_90th_percentile_is_an_observed_value():
    assert durations([]) == Durations()
    assert durations([7]) == Durations(cases=1, median_s=7.0, p90_s=7.0)
    assert durations([1, 2]) == Durations(cases=2, median_s=1.5, p90_s=2.0)
    assert durations(list(range(10, 0, -1))) == Durations(cases=10, median_s=5.5, p90_s=9.0)
    assert durations(list(range(1, 12))) == Durations(cases=11, median_s=6.0, p90_s=10.0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=40))
def test_durations_equal_a_naive_computation(seconds: list[int]):
    assert durations(seconds) == times(seconds)


@pytest.mark.parametrize(
    ("span", "name", "first", "last"),
    [
        (day_of(*days("2024-02-29")), "2024-02-29", "2024-02-29", "2024-02-29"),
        (week_of(*days("2024-12-31")), "2025-W01", "2024-12-30", "2025-01-05"),
        (month_of(*days("2024-02-10")), "2024-02", "2024-02-01", "2024-02-29"),
        (month_of(*days("2025-02-28")), "2025-02", "2025-02-01", "2025-02-28"),
        (month_of(*days("2025-12-31")), "2025-12", "2025-12-01", "2025-12-31"),
    ],
)
def test_periods_are_complete_and_named(span: DayRange, name: str, first: str, last: str):
    assert (span.name, [span.first, span.last]) == (name, days(first, last))
