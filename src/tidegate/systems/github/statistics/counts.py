"""Decides which items count, and turns counts into results.

Days are numbered as by `date.toordinal`, which avoids years and leap days.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from statistics import median

from sqlalchemy import ColumnElement, select

from tidegate.storage.sql import Transaction
from tidegate.systems.github import kinds
from tidegate.systems.github.statistics.facts import Activity, ItemState
from tidegate.systems.github.statistics.results import Durations, Issues, PullRequests, Streak, WeekCount
from tidegate.systems.github.statistics.tables import statistics_items

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


_item = statistics_items.c
Counts = Mapping[tuple[str, str | None], int]
"""Number of items by activity and state."""


class CountedRepositories:
    """The known repositories, which decide which items count.

    An item of an unknown repository (deleted, private, transferred) does not count. Commits in a fork do not count,
    because most of them were made in the original repository and would be counted twice.
    """

    def __init__(self, repositories: Iterable[tuple[str, str, str]]) -> None:
        self._sources: dict[tuple[str, str], bool] = {}
        for owner, resource, state in repositories:
            # A repository may be listed twice; it is a source if any of the documents says so.
            self._sources[owner, resource] = self._sources.get((owner, resource), False) or state == ItemState.SOURCE

    @classmethod
    def of(cls, tx: Transaction, owners: Iterable[str]) -> "CountedRepositories":
        """Read the repositories of some users."""
        found = select(_item.owner, _item.resource, _item.state)
        those = (_item.kind == kinds.REPOSITORY, _item.state.is_not(None), _item.owner.in_(sorted(owners)))
        return cls((row[0], row[1], row[2]) for row in tx.execute(found.where(*those)))

    def counts(self, owner: str, resource: str, activity: str) -> bool:
        """Whether an item counts. Items without a repository always do."""
        if activity == Activity.EVENT:
            return True
        is_source = self._sources.get((owner, resource))
        return is_source is True or (is_source is False and activity != Activity.COMMIT)


class Contributors:
    """Contributions per account, each under its latest login."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._names: dict[int, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, author_id: int, login: str, day: int | None, count: int) -> None:
        """Add contributions of an account, with its login on that day."""
        self._counts[author_id] += count
        # The login on the latest day: accounts can be renamed.
        self._names[author_id] = max(self._names.get(author_id, (-1, "")), (day or 0, login))

    def most_active(self, most: int) -> list[tuple[str, int]]:
        """Logins and contributions, most active first; ties are sorted by login."""
        named = [(self._names[author_id][1], count) for author_id, count in self._counts.items()]
        return sorted(named, key=lambda each: (-each[1], each[0].casefold(), each[0]))[:most]


def times_taken(tx: Transaction, known: CountedRepositories, condition: ColumnElement[bool]) -> Mapping[str, list[int]]:
    """Durations of closed issues and merged pull requests in seconds, by activity."""
    found = select(_item.owner, _item.resource, _item.activity, _item.took_s)
    those = (_item.activity.in_((Activity.ISSUE, Activity.PULL_REQUEST)), _item.took_s.is_not(None))
    took: defaultdict[str, list[int]] = defaultdict(list)
    for owner, resource, activity, seconds in tx.execute(found.where(condition, *those)):
        if known.counts(owner, resource, activity):
            took[activity].append(seconds)
    return took


def issues(counts: Counts, took: Mapping[str, list[int]]) -> Issues:
    """Results for issues, from counts by activity and state."""
    is_open, closed = (counts.get((Activity.ISSUE, state), 0) for state in (ItemState.OPEN, ItemState.CLOSED))
    return Issues(
        opened=is_open + closed, open=is_open, closed=closed, to_close=durations(took.get(Activity.ISSUE, []))
    )


def pull_requests(counts: Counts, took: Mapping[str, list[int]]) -> PullRequests:
    """Results for pull requests, from counts by activity and state."""
    states = (ItemState.OPEN, ItemState.MERGED, ItemState.CLOSED)
    is_open, merged, rejected = (counts.get((Activity.PULL_REQUEST, state), 0) for state in states)
    ended = merged + rejected
    return PullRequests(
        opened=is_open + ended,
        open=is_open,
        merged=merged,
        rejected=rejected,
        merge_rate=merged / ended if ended else None,
        to_merge=durations(took.get(Activity.PULL_REQUEST, [])),
    )
