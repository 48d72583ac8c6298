"""Arithmetic of days and durations. Days are numbered as by `date.toordinal`, which avoids years and leap days."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from statistics import median

from tidegate.systems.github.statistics.results import Durations, Streak, WeekCount

WEEKS = 53
"""Number of ISO weeks that a year can overlap."""


def monday_of(day: int) -> int:
    """The first day of the ISO week of a day."""
    return day - (day - 1) % 7


def week_name(day: int) -> str:
    """The ISO week of a day, `2026-W01`; its year is not always that of the day."""
    year, week, _ = date.fromordinal(day).isocalendar()
    return f"{year:04}-W{week:02}"


def last_weeks(commits: Mapping[int, int], today: int) -> tuple[WeekCount, ...]:
    """Commits of each of the last weeks up to the current one, from commits per day."""
    last = monday_of(today)
    first = last - 7 * (WEEKS - 1)
    per_week = dict.fromkeys(range(first, last + 1, 7), 0)
    for day, count in commits.items():
        if (monday := monday_of(day)) in per_week and day <= today:
            per_week[monday] += count
    return tuple(
        WeekCount(week=week_name(monday), first=date.fromordinal(monday), commits=count)
        for monday, count in per_week.items()
    )


def longest_streak(days: Iterable[int]) -> Streak:
    """The longest run of consecutive days; of several, the earliest."""
    best_first = best_last = best = first = 0
    last = -1
    for day in sorted(set(days)):
        if day != last + 1:
            first = day
        last = day
        if last - first + 1 > best:
            best, best_first, best_last = last - first + 1, first, last
    return _streak(best_first, best_last) if best else Streak()


def current_streak(days: Collection[int], today: int) -> Streak:
    """Consecutive days up to today; the current day does not end a streak while it lasts."""
    present = set(days)
    # A day without activity so far may still become active.
    last = today if today in present else today - 1
    first = last
    while first in present:
        first -= 1
    return _streak(first + 1, last) if first < last else Streak()


def durations(seconds: Sequence[int]) -> Durations:
    """Median and 90th percentile; the latter by rank, so that it is a duration that occurred."""
    if not seconds:
        return Durations()
    ordered = sorted(seconds)
    # Nine tenths, rounded up, in whole numbers.
    rank = -(-9 * len(ordered) // 10)
    return Durations(cases=len(ordered), median_s=float(median(ordered)), p90_s=float(ordered[rank - 1]))


def _streak(first: int, last: int) -> Streak:
    return Streak(days=last - first + 1, first=date.fromordinal(first), last=date.fromordinal(last))
