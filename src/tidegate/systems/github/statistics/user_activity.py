"""The activity of a user in all collected repositories.

Computed on request and not with the run, because it depends on the current day and on the runs of other users.
"""

from collections import Counter
from datetime import date

from sqlalchemy import func, select

from tidegate.storage.sql import Transaction
from tidegate.systems.github.statistics.calendar import WEEKS, current_streak, last_weeks, longest_streak, monday_of
from tidegate.systems.github.statistics.counts import CountedRepositories, issues, pull_requests, times_taken
from tidegate.systems.github.statistics.facts import Activity
from tidegate.systems.github.statistics.results import ByUser, DayCount
from tidegate.systems.github.statistics.tables import statistics_items

_item = statistics_items.c


def activity_of_user(tx: Transaction, account_id: int, today: int) -> ByUser:
    """The activity of an account, as of a day. Later days, caused by wrong clocks, are not active."""
    whose = _item.author_id == account_id
    columns = (_item.owner, _item.resource, _item.activity, _item.state, _item.day)
    grouped = select(*columns, func.count()).where(whose, _item.activity.is_not(None)).group_by(*columns)
    rows = tx.execute(grouped).all()
    known = CountedRepositories.of(tx, {row[0] for row in rows})
    counts: Counter[tuple[str, str | None]] = Counter()
    commits: Counter[int] = Counter()
    contributions: Counter[int] = Counter()
    active: set[int] = set()
    for owner, resource, activity, state, day, count in rows:
        if not known.counts(owner, resource, activity):
            continue
        counts[activity, state] += count
        if day is None or day > today:
            continue
        active.add(day)
        if activity != Activity.EVENT:
            contributions[day] += count
        if activity == Activity.COMMIT:
            commits[day] += count
    took = times_taken(tx, known, whose)
    return ByUser(
        commits=counts[Activity.COMMIT, None],
        issues=issues(counts, took),
        pull_requests=pull_requests(counts, took),
        reviews=counts[Activity.REVIEW, None],
        comments=counts[Activity.COMMENT, None],
        commits_per_week=last_weeks(commits, today),
        contributions_per_day=_recent(contributions, today),
        active_days=len(active),
        first_active=date.fromordinal(min(active)) if active else None,
        last_active=date.fromordinal(max(active)) if active else None,
        current_streak=current_streak(active, today),
        longest_streak=longest_streak(active),
    )


def _recent(contributions: Counter[int], today: int) -> tuple[DayCount, ...]:
    first = monday_of(today) - 7 * (WEEKS - 1)
    recent = sorted(day for day in contributions if first <= day)
    return tuple(DayCount(day=date.fromordinal(day), contributions=contributions[day]) for day in recent)
