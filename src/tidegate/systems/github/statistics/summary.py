"""Statistics of one user: sums over the user's repositories, and the user's activity in all collected ones.

The sums are stored with the user. The activity is computed on request and not with the run, because it depends on the
current day and on the runs of other users.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date
from typing import Any

import msgspec
from sqlalchemy import func, select, update

from tidegate.storage.sql import Transaction
from tidegate.systems.github import kinds
from tidegate.systems.github.statistics import item_store
from tidegate.systems.github.statistics.counts import (
    WEEKS,
    Contributors,
    CountedRepositories,
    current_streak,
    issues,
    last_weeks,
    longest_streak,
    monday_of,
    pull_requests,
    times_taken,
)
from tidegate.systems.github.statistics.facts import CONTRIBUTIONS, Activity, Detail, ItemState
from tidegate.systems.github.statistics.item_store import RecountPass
from tidegate.systems.github.statistics.results import (
    ByUser,
    Collaborator,
    DayCount,
    InRepositories,
    Language,
    OwnedRepositories,
    StarredRepository,
)
from tidegate.systems.github.statistics.tables import statistics_items, statistics_users

_item = statistics_items.c
_user = statistics_users.c
_TOP = 10


class StoredSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The stored results of a user."""

    repositories: OwnedRepositories = OwnedRepositories()
    in_repositories: InRepositories = InRepositories()


def conclude(tx: Transaction, held: RecountPass, run_id: int | None) -> None:
    """Sum the items after a completed recount; marks the user as computed if any item was ever found."""
    item_store.require_valid(tx, held)
    known = select(_user.run_id).where(_user.user_id == held.user_id)
    runs = [number for number in (tx.execute(known).scalar(), run_id) if number is not None]
    is_known = select(_item.id).where(_item.owner == held.user_id).limit(1)
    computed = {"computed_at": tx.now} if tx.execute(is_known).first() is not None else {}
    # The highest number: runs may be concluded in another order than they began.
    _write(tx, held.user_id, {"run_id": max(runs, default=None), **computed})


def refresh(tx: Transaction, user_id: str) -> None:
    """Sum the items of a user that lost some to other users."""
    # Locked and read again: another process may have refreshed the user meanwhile.
    stale = select(_user.is_stale).where(_user.user_id == user_id).with_for_update()
    if tx.execute(stale).scalar():
        _write(tx, user_id, {})


def _write(tx: Transaction, user_id: str, also: Mapping[str, Any]) -> None:
    """Compute the summary of a user from the counted items, and write it with `also`."""
    login = tx.execute(select(_user.login).where(_user.user_id == user_id)).scalar_one()
    account_id = _account_of(tx, user_id)
    summary = summarize(tx, user_id, login, account_id)
    inside = summary.in_repositories
    sums = {
        "repositories": summary.repositories.total,
        "stars": summary.repositories.stars,
        "commits": inside.commits,
        "issues": inside.issues.opened,
        "pull_requests": inside.pull_requests.opened,
        "merged_pull_requests": inside.pull_requests.merged,
        "reviews": inside.reviews,
        "comments": inside.comments,
    }
    kept = {"account_id": account_id, "is_stale": False, "summary": msgspec.to_builtins(summary)}
    tx.execute(update(statistics_users).where(_user.user_id == user_id).values(**sums, **kept, **also))


def summarize(tx: Transaction, user_id: str, login: str, account_id: int | None) -> StoredSummary:
    """Compute the results for the repositories of a user."""
    found = select(_item.owner, _item.resource, _item.state, _item.detail)
    those = (_item.owner == user_id, _item.kind == kinds.REPOSITORY, _item.state.is_not(None))
    rows = tx.execute(found.where(*those)).all()
    known = CountedRepositories((row[0], row[1], row[2]) for row in rows)
    details = [(row.resource, row.state == ItemState.FORK, msgspec.convert(row.detail, Detail)) for row in rows]
    return StoredSummary(
        repositories=_repositories(details),
        in_repositories=_in_repositories(tx, user_id, known, _SummaryUser(account_id, login.casefold())),
    )


class _SummaryUser(msgspec.Struct, frozen=True):
    account_id: int | None
    login_key: str

    def is_other_account(self, author_id: int, login: str) -> bool:
        if self.account_id is None:
            return login.casefold() != self.login_key
        return author_id != self.account_id


def _account_of(tx: Transaction, user_id: str) -> int | None:
    """GitHub's number of the user: from the profile, else from owned repositories, else from events."""
    for kind in (kinds.USER, kinds.REPOSITORY, kinds.DOCUMENTS[kinds.USER_EVENTS]):
        authors = select(_item.author_id)
        those = (_item.owner == user_id, _item.kind == kind, _item.author_id.is_not(None))
        newest = authors.where(*those).order_by(_item.changed_at.desc(), _item.id.desc()).limit(1)
        if (found := tx.execute(newest).scalar()) is not None:
            return found
    return None


def _repositories(details: list[tuple[str, bool, Detail]]) -> OwnedRepositories:
    """Sum the own repositories of a user."""
    languages: defaultdict[str, list[int]] = defaultdict(list)
    for _, is_fork, detail in details:
        if detail.language and not is_fork:
            languages[detail.language].append(detail.stars)
    starred = sorted((-detail.stars, resource) for resource, _, detail in details if detail.stars)
    main = [Language(name=name, repositories=len(stars), stars=sum(stars)) for name, stars in languages.items()]
    return OwnedRepositories(
        total=len(details),
        forks=sum(is_fork for _, is_fork, _ in details),
        archived=sum(detail.is_archived for *_, detail in details),
        stars=sum(detail.stars for *_, detail in details),
        times_forked=sum(detail.times_forked for *_, detail in details),
        languages=tuple(sorted(main, key=lambda each: (-each.repositories, -each.stars, each.name))),
        most_starred=tuple(
            StarredRepository(name=resource.removeprefix("repo:"), stars=-less) for less, resource in starred[:_TOP]
        ),
    )


def _in_repositories(tx: Transaction, user_id: str, known: CountedRepositories, self_: _SummaryUser) -> InRepositories:
    """Count the contributions in the repositories of a user, and rank their authors."""
    columns = (_item.resource, _item.activity, _item.state, _item.author_id, _item.author_login)
    grouped = select(*columns, func.count(), func.max(_item.day)).group_by(*columns)
    counts: Counter[tuple[str, str | None]] = Counter()
    people = Contributors()
    for resource, activity, state, author_id, login, count, day in tx.execute(
        grouped.where(_item.owner == user_id, _item.activity.in_(CONTRIBUTIONS))
    ):
        if not known.counts(user_id, resource, activity):
            continue
        counts[activity, state] += count
        if author_id is not None and self_.is_other_account(author_id, login):
            people.add(author_id, login, day, count)
    took = times_taken(tx, known, _item.owner == user_id)
    return InRepositories(
        commits=counts[Activity.COMMIT, None],
        issues=issues(counts, took),
        pull_requests=pull_requests(counts, took),
        reviews=counts[Activity.REVIEW, None],
        comments=counts[Activity.COMMENT, None],
        collaborators=len(people),
        top_collaborators=tuple(
            Collaborator(login=name, contributions=count) for name, count in people.most_active(_TOP)
        ),
    )


def activity_of_user(tx: Transaction, account_id: int, today: int) -> ByUser:
    """The activity of an account, as of a day. Later days, caused by wrong clocks, are not active."""
    condition = _item.author_id == account_id
    columns = (_item.owner, _item.resource, _item.activity, _item.state, _item.day)
    grouped = select(*columns, func.count()).where(condition, _item.activity.is_not(None)).group_by(*columns)
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
    took = times_taken(tx, known, condition)
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
