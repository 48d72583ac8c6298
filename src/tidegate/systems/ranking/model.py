"""Days, ISO weeks and months by the calendar of a time zone, and the scores of members in them."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache

import msgspec

from tidegate.core.errors import InvalidArgument, NotFound

LARGEST_TOP = 1000
"""Members of a window per request."""


class RankingPeriod(StrEnum):
    """Length of a window."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


KEPT_FOR = {
    RankingPeriod.DAILY: timedelta(days=2),
    RankingPeriod.WEEKLY: timedelta(days=8),
    RankingPeriod.MONTHLY: timedelta(days=32),
}
"""How long after its end a window is kept and still counts: always the whole next window."""
AHEAD = timedelta(days=1)
"""How far an event may be ahead of this process's clock; more is an error of the sender, not of a clock."""
REACH = timedelta(days=31 + 1) + KEPT_FOR[RankingPeriod.MONTHLY]
"""Events that are older than this are in no window that is kept."""


class Window(msgspec.Struct, frozen=True):
    """A period of time in which events are counted together."""

    period: RankingPeriod
    name: str
    """`2025-11-29`, `2025-W48` or `2025-11`. The names of one period sort by time."""
    first: date
    """Its first day in the calendar of the time zone."""
    starts_at: datetime
    ends_at: datetime

    @property
    def kept_until(self) -> datetime:
        """The window is deleted at this time, and not created again."""
        return self.ends_at + KEPT_FOR[self.period]


Windows = tuple[Window, Window, Window]
"""The day, the week and the month of a moment."""


def windows_at(moment: datetime, zone: tzinfo) -> Windows:
    """Return the day, week and month of a moment in a time zone."""
    if moment.tzinfo is None:
        raise InvalidArgument("moment", moment.isoformat(), "must have a time zone")
    return _windows_on(moment.astimezone(zone).date(), zone)


def window_on(period: RankingPeriod, day: date, zone: tzinfo) -> Window:
    """Return the window of a day. Raises `NotFound` in the first and last month that `datetime` supports."""
    try:
        return _window_on(RankingPeriod(period), day, zone)
    except (OverflowError, ValueError):
        raise NotFound("window around", day.isoformat()) from None


def kept_windows(now: datetime, zone: tzinfo) -> list[Window]:
    """Return every window that may have members now: present ones, earlier ones that are kept, and tomorrow's."""
    return [window for period in RankingPeriod for window in _kept(period, now, zone)]


def oldest_kept(period: RankingPeriod, now: datetime, zone: tzinfo) -> Window:
    """Return the earliest window that is kept."""
    return list(_kept(period, now, zone))[-1]


def _kept(period: RankingPeriod, now: datetime, zone: tzinfo) -> Iterator[Window]:
    """Iterate over the kept windows, latest first."""
    # Events may be up to a day ahead, so tomorrow's window may have members already.
    window = window_on(period, (now + AHEAD).astimezone(zone).date(), zone)
    while window.kept_until > now:
        yield window
        window = window_on(period, window.first - timedelta(days=1), zone)


@lru_cache(maxsize=256)
def _windows_on(day: date, zone: tzinfo) -> Windows:
    return (
        _window_on(RankingPeriod.DAILY, day, zone),
        _window_on(RankingPeriod.WEEKLY, day, zone),
        _window_on(RankingPeriod.MONTHLY, day, zone),
    )


def _window_on(period: RankingPeriod, day: date, zone: tzinfo) -> Window:
    match period:
        case RankingPeriod.DAILY:
            first, behind, name = day, day + timedelta(days=1), day.isoformat()
        case RankingPeriod.WEEKLY:
            year, week, weekday = day.isocalendar()
            first = day - timedelta(days=weekday - 1)
            behind, name = first + timedelta(days=7), f"{year:04}-W{week:02}"
        case RankingPeriod.MONTHLY:
            first = day.replace(day=1)
            # 31 days after the first of a month is always in the next month.
            behind, name = (first + timedelta(days=31)).replace(day=1), f"{day.year:04}-{day.month:02}"
    # Both ends by the calendar: a day has 23 or 25 hours when the clocks change.
    return Window(period, name, first, _midnight(first, zone), _midnight(behind, zone))


def _midnight(day: date, zone: tzinfo) -> datetime:
    """Return when a day begins; if the clocks skip midnight, the moment of the change."""
    return datetime.combine(day, time.min, zone).astimezone(UTC)


class CountedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that counts for a member."""

    event_id: str
    member: str
    at: datetime
    amount: int = 1


class Score(msgspec.Struct, frozen=True):
    """A member's score in one window."""

    member: str
    score: int
    reached_at: datetime


class MemberScores(msgspec.Struct, frozen=True):
    """A member's scores in the windows of one moment; None if it has none, or the window is gone."""

    windows: Windows
    scores: tuple[Score | None, Score | None, Score | None]


class CountResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of counting a batch of events."""

    standings: list[MemberScores]
    """Present scores of all members with an event in the batch, including events that were counted before."""
    counted: int
    repeated: int
    late: int
    """Events in no window that is kept."""


class RankedMember(msgspec.Struct, frozen=True):
    """A member with its rank in a window."""

    rank: int
    """Rank, starting at 1; unique within a window."""
    member: str
    score: int


class WindowRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Members of a window."""

    total: int
    """Number of members of the window."""
    entries: list[RankedMember]


class RankingTop(msgspec.Struct, frozen=True, kw_only=True):
    """The first members of a window."""

    window: Window
    total: int
    """Number of members of the window."""
    entries: list[RankedMember]
    degraded: bool
    """Whether the ranking is unavailable: the server is unavailable, or its copy is being rebuilt. `entries` is then
    empty."""


class MemberPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A member's place in a window."""

    window: Window
    member: str
    rank: int | None
    """None if the member has no score in this window, or the ranking is unavailable."""
    score: int | None
    total: int
    """Number of members of the window."""
    around: list[RankedMember]
    """The member with its neighbours, in order."""
    degraded: bool
    """See `RankingTop.degraded`."""


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a rebuild."""

    board: str
    windows: int
    """Windows with members."""
    members: int
    """Members of all windows."""
