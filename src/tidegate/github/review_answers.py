"""Answers of GraphQL to questions about reviews: data, errors, or both at once."""

from typing import Any

import msgspec

from tidegate.collect.source import Reading, Verdict
from tidegate.github import limits
from tidegate.github.limits import Limit
from tidegate.upstream import Answer

_LIMITED = frozenset({"RATE_LIMITED", "RATE_LIMIT"})
_PERMANENT = frozenset({"NOT_FOUND", "FORBIDDEN"})


class PageInfo(msgspec.Struct, rename="camel"):
    """Where a list goes on."""

    has_next_page: bool = False
    end_cursor: str | None = None


class Author(msgspec.Struct, rename="camel"):
    """Who wrote it; not every author has a number here."""

    login: str
    database_id: int | None = None


class CommitRef(msgspec.Struct, rename="camel"):
    """The commit that was reviewed."""

    oid: str


class Review(msgspec.Struct, rename="camel"):
    """One review."""

    id: str
    full_database_id: str
    state: str
    url: str
    body: str = ""
    submitted_at: str | None = None
    author_association: str | None = None
    commit: CommitRef | None = None
    author: Author | None = None


class Connection(msgspec.Struct, rename="camel"):
    """Reviews of one pull request."""

    nodes: list[Review] = []
    page_info: PageInfo = msgspec.field(default_factory=PageInfo)


class Pull(msgspec.Struct, rename="camel"):
    """A pull request with some of its reviews."""

    id: str
    number: int
    updated_at: str
    reviews: Connection


class Pulls(msgspec.Struct, rename="camel"):
    """Pull requests of one repository."""

    nodes: list[Pull] = []
    page_info: PageInfo = msgspec.field(default_factory=PageInfo)


class Node(msgspec.Struct, rename="camel"):
    """What was asked for: a repository with pull requests, or one pull request."""

    pull_requests: Pulls | None = None
    id: str = ""
    number: int = 0
    updated_at: str = ""
    reviews: Connection | None = None

    @property
    def as_pull(self) -> Pull:
        """The pull request that was asked for."""
        return Pull(self.id, self.number, self.updated_at, self.reviews or Connection())


class Problem(msgspec.Struct, rename="camel"):
    """One error."""

    message: str = ""
    type: str = ""


class _Envelope(msgspec.Struct, rename="camel"):
    data: Any = None
    errors: list[Problem] = []


class _Data(msgspec.Struct, rename="camel"):
    node: Node | None = None


def parse(answer: Answer) -> tuple[Node | None, Reading | None]:
    """What was asked for, or what the errors mean. Data with holes is no answer: it is asked for again."""
    envelope = msgspec.json.decode(answer.body, type=_Envelope)
    if envelope.errors:
        return None, _trouble(answer, envelope.errors)
    found = msgspec.convert(envelope.data, _Data).node
    if found is None:
        return None, Reading(verdict=Verdict.GONE, reason="GraphQL: there is no such repository")
    return found, None


def _trouble(answer: Answer, problems: list[Problem]) -> Reading:
    kinds = {problem.type for problem in problems}
    reason = f"GraphQL: {problems[0].type or 'error'}: {problems[0].message}"[:500]
    if kinds & _LIMITED:
        if limits.limit_of(answer) is Limit.PRIMARY:
            return Reading(verdict=Verdict.LATER, reason=reason, delay_ms=0)
        return limits.rest(answer, reason)
    if kinds <= _PERMANENT:
        return Reading(verdict=Verdict.GONE, reason=reason)
    return Reading(verdict=Verdict.RETRY, reason=reason)
