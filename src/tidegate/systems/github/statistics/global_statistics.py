"""Statistics of all users: totals, and the most active users and repositories per period."""

from calendar import monthrange
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, func, or_, select

from tidegate.storage.sql import Transaction
from tidegate.systems.github import kinds
from tidegate.systems.github.statistics.counts import Contributors, monday_of, week_name
from tidegate.systems.github.statistics.facts import CONTRIBUTIONS, Activity, ItemState
from tidegate.systems.github.statistics.results import DayTotals, GlobalStatistics, Period, Ranked, Totals
from tidegate.systems.github.statistics.tables import statistics_items, statistics_users

_item, _user = statistics_items.c, statistics_users.c
_TOP = 10


class DayRange(msgspec.Struct, frozen=True):
    """A range of days, both ends included."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of a day, a week or a month."""
        day = date.fromordinal(self.first)
        match self.last - self.first:
            case 0:
                return day.isoformat()
            case 6:
                return week_name(self.first)
            case _:
                return f"{day:%Y-%m}"


def day_of(day: int) -> DayRange:
    """The range of a single day."""
    return DayRange(day, day)


def week_of(day: int) -> DayRange:
    """The range of the ISO week of a day."""
    monday = monday_of(day)
    return DayRange(monday, monday + 6)


def month_of(day: int) -> DayRange:
    """The range of the month of a day."""
    first = date.fromordinal(day).replace(day=1)
    return DayRange(first.toordinal(), first.toordinal() + monthrange(first.year, first.month)[1] - 1)


def overall(tx: Transaction, days: int, now: datetime) -> GlobalStatistics:
    """All statistics, with one entry per day for the last `days` days."""
    today = now.toordinal()
    first = today - days + 1
    # Whole weeks and months, so that the first period is not counted partly.
    since = min(week_of(first).first, month_of(first).first)
    by_author = list(_by(tx, DayRange(since, today), (_item.author_id, _item.author_login)))
    by_repository = list(_by(tx, DayRange(since, today), (_item.resource,)))

    def periods(span_of: Callable[[int], DayRange], begin: int) -> tuple[Period, ...]:
        return _periods(by_author, by_repository, span_of, begin)

    return GlobalStatistics(
        as_of=now,
        totals=_totals(tx),
        days=_days(tx, first, today),
        by_day=periods(day_of, first),
        by_week=periods(week_of, week_of(first).first),
        by_month=periods(month_of, month_of(first).first),
    )


def _totals(tx: Transaction) -> Totals:
    names = [name for name in Totals.__struct_fields__ if name != "users"]
    summed = select(func.count(), *(func.coalesce(func.sum(_user[name]), 0) for name in names))
    users, *sums = tx.execute(summed.where(_user.computed_at.is_not(None))).one()
    return Totals(users=users, **{name: int(value) for name, value in zip(names, sums, strict=True)})


def _days(tx: Transaction, first: int, last: int) -> tuple[DayTotals, ...]:
    names = {
        Activity.COMMIT: "commits",
        Activity.ISSUE: "issues",
        Activity.PULL_REQUEST: "pull_requests",
        Activity.REVIEW: "reviews",
        Activity.COMMENT: "comments",
    }
    totals: dict[int, dict[str, int]] = {day: {} for day in range(first, last + 1)}
    for day, activity, count in _by(tx, DayRange(first, last), (_item.activity,)):
        totals[day][names[activity]] = count
    return tuple(DayTotals(day=date.fromordinal(day), **counts) for day, counts in totals.items())


def _by(tx: Transaction, span: DayRange, columns: tuple[ColumnElement[Any], ...]) -> Iterable[Any]:
    """Counting contributions in a range, by day and by further columns."""
    grouped = select(_item.day, *columns, func.count()).group_by(_item.day, *columns)
    those = (_item.day.between(span.first, span.last), _item.activity.in_(CONTRIBUTIONS))
    return tx.execute(grouped.where(*those, _counts()))


def _counts() -> ColumnElement[bool]:
    """The rule of `CountedRepositories.counts` in SQL."""
    repository = statistics_items.alias("repository")
    return (
        select(1)
        .where(
            repository.c.kind == kinds.REPOSITORY,
            repository.c.owner == _item.owner,
            repository.c.resource == _item.resource,
            or_(_item.activity != Activity.COMMIT, repository.c.state == ItemState.SOURCE),
        )
        .exists()
    )


def _periods(
    by_author: Iterable[Any],
    by_repository: Iterable[Any],
    span_of: Callable[[int], DayRange],
    begin: int,
) -> tuple[Period, ...]:
    """Group daily counts by period, the newest first, with the most active users and repositories."""
    people: defaultdict[DayRange, Contributors] = defaultdict(Contributors)
    repositories: defaultdict[DayRange, Counter[str]] = defaultdict(Counter)
    for day, author_id, login, count in by_author:
        if day >= begin and author_id is not None:
            people[span_of(day)].add(author_id, login, day, count)
    for day, resource, count in by_repository:
        if day >= begin:
            repositories[span_of(day)][resource.removeprefix("repo:")] += count
    return tuple(
        Period(
            name=span.name,
            first=date.fromordinal(span.first),
            last=date.fromordinal(span.last),
            contributions=repositories[span].total(),
            users=tuple(Ranked(name=name, contributions=count) for name, count in people[span].most_active(_TOP)),
            repositories=_ranked(repositories[span]),
        )
        for span in sorted(repositories, key=lambda each: each.first, reverse=True)
    )


def _ranked(counts: Counter[str]) -> tuple[Ranked, ...]:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0].casefold(), each[0]))
    return tuple(Ranked(name=name, contributions=count) for name, count in ordered[:_TOP])
