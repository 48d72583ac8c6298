"""The entry point of statistics: a finalizer that updates them, and their readers.

Statistics of all users are totals, and the most active users and repositories per period.
"""

import asyncio
from calendar import monthrange
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, func, or_, select

from tidegate.core.arguments import require_name, require_whole
from tidegate.core.backoff import Backoff
from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.runs import Run
from tidegate.engine.tables import page_jobs
from tidegate.storage.documents import DocumentStore
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.github import kinds
from tidegate.systems.github.source import GithubSource
from tidegate.systems.github.statistics import item_store, summary
from tidegate.systems.github.statistics.counts import Contributors, monday_of, week_name
from tidegate.systems.github.statistics.facts import CONTRIBUTIONS, Activity, ItemState
from tidegate.systems.github.statistics.item_store import ComputationReplaced, Recount
from tidegate.systems.github.statistics.results import (
    ByUser,
    DayTotals,
    GlobalStatistics,
    Period,
    Ranked,
    Totals,
    UserStatistics,
)
from tidegate.systems.github.statistics.summary import StoredSummary, activity_of_user
from tidegate.systems.github.statistics.tables import statistics_items, statistics_users
from tidegate.systems.github.subjects import SubjectKind, parse_subject

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


log = get_logger(__name__)

_MOST_TRIES = 8
_PAUSES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5))
LONGEST_SPAN = 366


class Statistics:
    """Statistics of single users and of all users.

    The stored results depend on the documents only: when a computation ends, they are the same as after a full
    recomputation, whatever was computed before, how often and concurrently.
    """

    def __init__(self, database: Database, documents: DocumentStore) -> None:
        self._database, self._documents = database, documents

    async def finalize(self, run: Run) -> None:
        """Update the statistics of a run's accounts; ignores runs of other sources.

        A user or an organization has its own statistics. A repository or a search covers only a part of its accounts'
        repositories, so only accounts that have statistics already are updated.

        As a finalizer it can be repeated for the same run, and run concurrently for several runs.
        """
        if run.source != GithubSource.name:
            return
        for user_id, login in await self._database.read(_accounts_of, run):
            await self._compute(user_id, login, run_id=run.id, full=False)

    async def recompute(self, user_id: str) -> None:
        """Read all documents of a user and recompute everything; raises `NotFound` for an unknown user."""
        login = await self._database.read(_login_of, require_name("user_id", user_id))
        if login is None:
            raise NotFound("user with statistics", user_id)
        await self._compute(user_id, login, run_id=None, full=True)

    async def of_user(self, login: str) -> UserStatistics | None:
        """The current statistics of a user; None if no run of the user was completed. Case is ignored."""
        return await self._database.read(_of_user, require_name("login", login), self._database.clock.now())

    async def overall(self, *, days: int = 30) -> GlobalStatistics:
        """Totals of all users, and the most active users and repositories of the last `days` days, weeks and months."""
        require_whole("days", days, least=1, most=LONGEST_SPAN)
        return await self._database.read(overall, days, self._database.clock.now().astimezone(UTC))

    async def _compute(self, user_id: str, login: str, *, run_id: int | None, full: bool) -> None:
        """Recount the items of a user and write the sums; repeat if another computation replaced this one."""
        tries = 1
        while True:
            held = await self._database.transaction(item_store.begin, user_id, login)
            recount = Recount(self._database, self._documents, held, full=full)
            try:
                await recount.run()
                await self._database.transaction(summary.conclude, held, run_id)
                break
            except ComputationReplaced:
                # The other computation may die before its end, so this one retries, with pauses against livelock.
                if tries == _MOST_TRIES:
                    raise
                await asyncio.sleep(_PAUSES.delay(tries).total_seconds())
                tries += 1
        # After the own sums: documents that this user took from others are subtracted there.
        await self._refresh_others()
        log.debug("statistics.computed", user_id=user_id, run_id=run_id, documents=recount.read, full=full)

    async def _refresh_others(self) -> None:
        """Update users that lost documents to this user, or to a computation that died before this step."""
        for user_id in await self._database.read(item_store.stale_users):
            await self._database.transaction(summary.refresh, user_id)


def _accounts_of(tx: Transaction, run: Run) -> list[tuple[str, str]]:
    """The accounts with statistics that own documents of a run, and their logins."""
    subject = parse_subject(run.login)
    match subject.kind:
        case SubjectKind.USER:
            return [(run.user_id, run.login)]
        case SubjectKind.ORGANIZATION:
            return [(subject.name, subject.name)]
        case _:
            owners = select(page_jobs.c.owner).where(page_jobs.c.run_id == run.id)
            known = select(_user.user_id, _user.login).where(_user.user_id.in_(owners)).order_by(_user.user_id)
            return [(row.user_id, row.login) for row in tx.execute(known)]


def _login_of(tx: Transaction, user_id: str) -> str | None:
    return tx.execute(select(_user.login).where(_user.user_id == user_id)).scalar()


def _of_user(tx: Transaction, login: str, now: datetime) -> UserStatistics | None:
    found = select(statistics_users).where(_user.login_key == login.casefold(), _user.computed_at.is_not(None))
    row = tx.execute(found.order_by(_user.computed_at.desc(), _user.user_id).limit(1)).one_or_none()
    if row is None:
        return None
    kept = msgspec.convert(row.summary, StoredSummary)
    today = now.astimezone(UTC).toordinal()
    return UserStatistics(
        user_id=row.user_id,
        login=row.login,
        run_id=row.run_id,
        computed_at=row.computed_at,
        repositories=kept.repositories,
        in_repositories=kept.in_repositories,
        by_user=ByUser() if row.account_id is None else activity_of_user(tx, row.account_id, today),
    )
