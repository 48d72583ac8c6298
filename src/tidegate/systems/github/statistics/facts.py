"""Extracts the countable facts of a document. Pure: equal documents give equal facts.

A body with missing or malformed fields is counted as far as it can be read, because one malformed document must not
prevent the statistics of a user permanently.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from tidegate.core.errors import UNDECODABLE
from tidegate.storage.documents import StoredDocument
from tidegate.storage.documents.document import LONGEST_TEXT
from tidegate.systems.github import kinds
from tidegate.systems.github.statistics.tables import LONGEST_LOGIN

GHOST = 10137
"""GitHub's account in place of deleted accounts."""
_LARGEST = 2**63 - 1
_LARGEST_COUNT = 2**40


class Activity(StrEnum):
    """The kind of activity that an item counts as."""

    COMMIT = "commit"
    ISSUE = "issue"
    PULL_REQUEST = "pull_request"
    REVIEW = "review"
    COMMENT = "comment"
    EVENT = "event"  # an entry of the public timeline: makes a day active, but is no contribution


CONTRIBUTIONS = (Activity.COMMIT, Activity.ISSUE, Activity.PULL_REQUEST, Activity.REVIEW, Activity.COMMENT)


class ItemState(StrEnum):
    """The state of an item, or the kind of a repository."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"
    SOURCE = "source"  # not a fork
    FORK = "fork"


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """The counted properties of a repository."""

    stars: int
    times_forked: int
    is_archived: bool
    language: str | None = None


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """The stored facts of a document; see the columns of `statistics_items`."""

    resource: str
    activity: Activity | None = None
    author_id: int | None = None
    author_login: str | None = None
    day: int | None = None
    state: ItemState | None = None
    took_s: int | None = None
    detail: Detail | None = None


class _AccountRef(msgspec.Struct):
    id: int | None = None
    login: str | None = None
    type: str | None = None


class _Repository(msgspec.Struct):
    full_name: str
    owner: _AccountRef | None = None
    stargazers_count: int | None = None
    forks_count: int | None = None
    language: str | None = None
    fork: bool | None = None
    archived: bool | None = None


class _Signature(msgspec.Struct):
    date: str | None = None


class _Git(msgspec.Struct):
    author: _Signature | None = None


class _Commit(msgspec.Struct):
    commit: _Git | None = None
    author: _AccountRef | None = None


class _Thread(msgspec.Struct):
    user: _AccountRef | None = None
    state: str | None = None
    created_at: str | None = None
    closed_at: str | None = None
    merged_at: str | None = None
    pull_request: dict[str, Any] | None = None


class _Authored(msgspec.Struct):
    user: _AccountRef | None = None
    created_at: str | None = None
    submitted_at: str | None = None


class _Event(msgspec.Struct):
    actor: _AccountRef | None = None
    created_at: str | None = None


def fact_of(document: StoredDocument) -> Fact | None:
    """The facts of a document; None if it cannot be read, and so does not count."""
    try:
        return READERS[document.kind](document)
    except UNDECODABLE:
        return None


def _user(document: StoredDocument) -> Fact:
    return _fact(document, document.body_as(_AccountRef))


def _repository(document: StoredDocument) -> Fact | None:
    """Return the fact of a repository; None if its name cannot be stored."""
    found: _Repository = document.body_as(_Repository)
    resource = f"repo:{found.full_name}"  # the resource of its items
    if len(resource) > LONGEST_TEXT or not resource.isprintable():
        return None
    owner_id, owner_login = _person(found.owner)
    return Fact(
        resource=resource,
        author_id=owner_id,
        author_login=owner_login,
        state=ItemState.FORK if found.fork else ItemState.SOURCE,
        detail=Detail(
            stars=_number(found.stargazers_count),
            times_forked=_number(found.forks_count),
            is_archived=bool(found.archived),
            language=found.language,
        ),
    )


def _commit(document: StoredDocument) -> Fact:
    """Count a commit for its author at the authored date, which rebases and merges keep."""
    found: _Commit = document.body_as(_Commit)
    signature = found.commit.author if found.commit else None
    at = _moment(signature.date if signature else None)
    return _fact(document, found.author, activity=Activity.COMMIT, at=at)


def _issue(document: StoredDocument) -> Fact:
    found: _Thread = document.body_as(_Thread)
    if found.pull_request is not None:  # also in the list of issues, and counted as a pull request
        return Fact(resource=document.resource)
    opened, closed = _moment(found.created_at), _moment(found.closed_at)
    is_closed = found.state == "closed"
    return _fact(
        document,
        found.user,
        activity=Activity.ISSUE,
        at=opened,
        state=ItemState.CLOSED if is_closed else ItemState.OPEN,
        took_s=_seconds(opened, closed) if is_closed else None,
    )


def _pull_request(document: StoredDocument) -> Fact:
    found: _Thread = document.body_as(_Thread)
    opened, merged = _moment(found.created_at), _moment(found.merged_at)
    state = ItemState.CLOSED if found.state == "closed" else ItemState.OPEN
    return _fact(
        document,
        found.user,
        activity=Activity.PULL_REQUEST,
        at=opened,
        # GitHub reports merged pull requests as closed.
        state=ItemState.MERGED if found.merged_at else state,
        took_s=_seconds(opened, merged),
    )


def _comment(document: StoredDocument) -> Fact:
    found: _Authored = document.body_as(_Authored)
    return _fact(document, found.user, activity=Activity.COMMENT, at=_moment(found.created_at))


def _review(document: StoredDocument) -> Fact:
    found: _Authored = document.body_as(_Authored)
    return _fact(document, found.user, activity=Activity.REVIEW, at=_moment(found.submitted_at))


def _event(document: StoredDocument) -> Fact:
    found: _Event = document.body_as(_Event)
    return _fact(document, found.actor, activity=Activity.EVENT, at=_moment(found.created_at))


READERS: Mapping[str, Callable[[StoredDocument], Fact | None]] = {
    kinds.USER: _user,
    kinds.REPOSITORY: _repository,
    kinds.DOCUMENTS[kinds.USER_EVENTS]: _event,
    kinds.DOCUMENTS[kinds.REPO_ISSUES]: _issue,
    kinds.DOCUMENTS[kinds.REPO_PRS]: _pull_request,
    kinds.DOCUMENTS[kinds.REPO_COMMITS]: _commit,
    kinds.DOCUMENTS[kinds.REPO_ISSUE_COMMENTS]: _comment,
    kinds.DOCUMENTS[kinds.REPO_REVIEW_COMMENTS]: _comment,
    kinds.DOCUMENTS[kinds.REPO_REVIEWS]: _review,
}
"""The reader of each kind of document that is counted."""


def _fact(
    document: StoredDocument,
    account: _AccountRef | None,
    *,
    activity: Activity | None = None,
    at: datetime | None = None,
    state: ItemState | None = None,
    took_s: int | None = None,
) -> Fact:
    """Return the fact of an item in a repository."""
    author_id, author_login = _person(account)
    return Fact(
        resource=document.resource,
        activity=activity,
        author_id=author_id,
        author_login=author_login,
        day=None if at is None else at.toordinal(),
        state=state,
        took_s=took_s,
    )


def _person(account: _AccountRef | None) -> tuple[int | None, str | None]:
    """Number and login of an account; None for bots, deleted accounts, and accounts that GitHub does not know."""
    if account is None or account.id is None or not account.login:
        return None, None
    is_person = account.type != "Bot" and account.id != GHOST
    # Values that no column accepts must not fail the statistics of the user.
    is_sound = 0 < account.id <= _LARGEST and len(account.login) <= LONGEST_LOGIN and account.login.isprintable()
    return (account.id, account.login) if is_person and is_sound else (None, None)


def _number(value: int | None) -> int:
    return min(max(value or 0, 0), _LARGEST_COUNT)


def _moment(text: str | None) -> datetime | None:
    """Parse a timestamp in UTC; None if it is missing or invalid."""
    try:
        moment = datetime.fromisoformat(text or "")
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _seconds(first: datetime | None, last: datetime | None) -> int | None:
    if first is None or last is None:
        return None
    return max(0, int((last - first).total_seconds()))
