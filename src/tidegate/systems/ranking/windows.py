"""Days, ISO weeks and months by the clocks of a place. Nothing here looks at a clock.

A week belongs to the year that has its Thursday, so 2024-12-30 is in 2025-W01. A day is what the calendar of the time
zone calls one: 23 or 25 hours long when the clocks are changed.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache

import msgspec

from tidegate.core.errors import InvalidArgument, NotFound

LARGEST_TOP = 1000
"""Members of a window that one request may show."""


class Period(StrEnum):
    """How long a window lasts."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


KEPT_FOR = {
    Period.DAILY: timedelta(days=2),
    Period.WEEKLY: timedelta(days=8),
    Period.MONTHLY: timedelta(days=32),
}
"""How long after its end a window can still be read, and counts: always the whole window that follows."""

AHEAD = timedelta(days=1)
"""How far ahead of our clock an event may be: two clocks never differ that much, and a slip of the pen always does."""

REACH = timedelta(days=31 + 1) + KEPT_FOR[Period.MONTHLY]
"""What is older than this is in no window that is kept."""


class Window(msgspec.Struct, frozen=True):
    """A span of time whose events are counted together."""

    period: Period
    name: str
    """`2025-11-29`, `2025-W48` or `2025-11`. The names of one period sort by time."""
    first: date
    """Its first day, by the calendar of the time zone."""
    starts_at: datetime
    ends_at: datetime

    @property
    def kept_until(self) -> datetime:
        """From then on it is gone, and nothing brings it back."""
        return self.ends_at + KEPT_FOR[self.period]


Windows = tuple[Window, Window, Window]
"""The day, the week and the month of one moment."""


def windows_at(moment: datetime, zone: tzinfo) -> Windows:
    """In which day, week and month a moment lies, in the time zone."""
    if moment.tzinfo is None:
        raise InvalidArgument("moment", moment.isoformat(), "must have a time zone")
    return _windows_on(moment.astimezone(zone).date(), zone)


def window_on(period: Period, day: date, zone: tzinfo) -> Window:
    """The window of a day of the calendar; `NotFound` in the first and the last month that a calendar can count."""
    try:
        return _window_on(Period(period), day, zone)
    except (OverflowError, ValueError):
        raise NotFound("window around", day.isoformat()) from None


def kept_windows(now: datetime, zone: tzinfo) -> list[Window]:
    """Every window that may have members now: the present ones, those before that are still kept, and tomorrow's."""
    return [window for period in Period for window in _kept(period, now, zone)]


def oldest_kept(period: Period, now: datetime, zone: tzinfo) -> Window:
    """The earliest of those that are still kept."""
    return list(_kept(period, now, zone))[-1]


def _kept(period: Period, now: datetime, zone: tzinfo) -> Iterator[Window]:
    """The latest first."""
    window = window_on(period, (now + AHEAD).astimezone(zone).date(), zone)
    while window.kept_until > now:
        yield window
        window = window_on(period, window.first - timedelta(days=1), zone)


@lru_cache(maxsize=256)
def _windows_on(day: date, zone: tzinfo) -> Windows:
    return (
        _window_on(Period.DAILY, day, zone),
        _window_on(Period.WEEKLY, day, zone),
        _window_on(Period.MONTHLY, day, zone),
    )


def _window_on(period: Period, day: date, zone: tzinfo) -> Window:
    match period:
        case Period.DAILY:
            first, behind, name = day, day + timedelta(days=1), day.isoformat()
        case Period.WEEKLY:
            year, week, weekday = day.isocalendar()
            first = day - timedelta(days=weekday - 1)
            behind, name = first + timedelta(days=7), f"{year:04}-W{week:02}"
        case Period.MONTHLY:
            first = day.replace(day=1)
            behind, name = (first + timedelta(days=31)).replace(day=1), f"{day.year:04}-{day.month:02}"
    return Window(period, name, first, _midnight(first, zone), _midnight(behind, zone))


def _midnight(day: date, zone: tzinfo) -> datetime:
    """When a day begins. Where the clocks skip midnight, that is the moment in which they do."""
    return datetime.combine(day, time.min, zone).astimezone(UTC)
