"""Parses GraphQL answers, which have data, errors or both. `parse` reads the reviews of pull requests.

A node that is null or has an unexpected shape is skipped. The lists and their page information are required: an answer
without them is not an empty list.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tidegate.engine.items import decode_with_items, read_items
from tidegate.engine.source import Reading, Verdict
from tidegate.engine.upstream import Answer
from tidegate.systems.github import limits
from tidegate.systems.github.limits import LimitKind

_LIMITED = frozenset({"RATE_LIMITED", "RATE_LIMIT"})
_NULL = msgspec.Raw(b"null")
_PERMANENT = frozenset({"NOT_FOUND", "FORBIDDEN"})
_BLOCKED = "access blocked"
_REVIEWS = ("reviews", "nodes")
_PULLS = ("pullRequests", "nodes", *_REVIEWS)
STUCK = "the page has a successor, and no cursor that leads to it"
"""Why the items behind a page count as skipped; see `PageInfo.is_stuck`."""


class PageInfo(msgspec.Struct, rename="camel"):
    """Page information of a list."""

    has_next_page: bool
    end_cursor: str | None = None

    def is_stuck(self, after: str | None) -> bool:
        """Whether there is another page, but no cursor that leads to it: none, or the one of the request itself."""
        return self.has_next_page and self.end_cursor in (None, after)


class GraphqlError(msgspec.Struct, rename="camel"):
    """An error in a GraphQL answer."""

    message: str | None = None
    type: str | None = None


class _Data(msgspec.Struct, rename="camel"):
    node: msgspec.Raw = _NULL
    nodes: msgspec.Raw = _NULL


class _Envelope(msgspec.Struct, rename="camel"):
    data: _Data | None = None
    errors: list[GraphqlError] | None = None


def read_node(
    answer: Answer, *path: str, missing: Verdict = Verdict.GONE, field: Literal["node", "nodes"] = "node"
) -> msgspec.Raw | Reading:
    """Return the JSON of the requested node, or the meaning of the errors; `missing` if the node does not exist.

    `path` leads from the node to its items: those that cannot be decoded are null in the result.
    With the field `nodes` it is the list of the requested nodes, with null for each that does not exist.

    Incomplete data is requested again, unless the errors are permanent: then it is returned as it is.
    """
    envelope = decode_with_items(answer.body, _Envelope, "data", field, *path)
    problems, node = envelope.errors or [], None
    if envelope.data is not None and getattr(envelope.data, field) != _NULL:
        node = getattr(envelope.data, field)
    are_permanent = all(problem.type in _PERMANENT for problem in problems)
    # GraphQL answers 200 with partial data. A temporary error would leave gaps that look like deletions.
    if problems and (node is None or not are_permanent):
        return _failed_reading(answer, problems, missing)
    if envelope.data is None:
        return Reading(verdict=Verdict.RETRY, reason="GraphQL: neither data nor errors")
    if node is None:
        return Reading(verdict=missing, reason="GraphQL: the node does not exist")
    return node


def _failed_reading(answer: Answer, problems: list[GraphqlError], missing: Verdict) -> Reading:
    kinds = {problem.type for problem in problems}
    reason = f"GraphQL: {problems[0].type or 'error'}: {problems[0].message or ''}"[:500]
    if kinds & _LIMITED:
        # The allowance in the headers says when the window is renewed, so no pause is guessed.
        if limits.limit_of(answer) is LimitKind.PRIMARY:
            return Reading(verdict=Verdict.LATER, reason=reason, delay_ms=0)
        return limits.rest(answer, reason)
    if kinds <= _PERMANENT:
        # Another FORBIDDEN says that the token lacks a permission.
        is_missing = kinds == {"NOT_FOUND"} or _BLOCKED in reason.lower()
        return Reading(verdict=missing if is_missing else Verdict.GONE, reason=reason)
    return Reading(verdict=Verdict.RETRY, reason=reason)


class Author(msgspec.Struct, rename="camel"):
    """The author of a review; `database_id` is None for authors that have no number in GraphQL."""

    login: str | None = None
    database_id: int | None = None


class CommitRef(msgspec.Struct, rename="camel"):
    """The commit that was reviewed."""

    oid: str | None = None


class Review(msgspec.Struct, rename="camel"):
    """A review of a pull request."""

    id: str
    full_database_id: Annotated[str, Meta(pattern="^[0-9]{1,20}$")]
    state: str | None = None
    url: str | None = None
    body: str | None = None
    submitted_at: str | None = None
    updated_at: str | None = None
    author_association: str | None = None
    commit: CommitRef | None = None
    author: Author | None = None


class ReviewConnection(msgspec.Struct, rename="camel"):
    """Reviews of one pull request."""

    nodes: list[msgspec.Raw]
    page_info: PageInfo


class Pull(msgspec.Struct, rename="camel"):
    """A pull request with some of its reviews."""

    id: str
    number: int
    updated_at: str
    reviews: ReviewConnection


class Pulls(msgspec.Struct, rename="camel"):
    """Pull requests of one repository."""

    nodes: list[msgspec.Raw]
    page_info: PageInfo


class ReviewedRepository(msgspec.Struct, rename="camel"):
    """A repository with some of its pull requests."""

    pull_requests: Pulls


class ReviewsFound(msgspec.Struct, frozen=True, kw_only=True):
    """The reviews in a parsed answer."""

    pulls: list[Pull]
    page_info: PageInfo | None
    """Page information of the list of pull requests; None if a single pull request was requested."""
    skipped: list[str]


def parse(answer: Answer, *, is_pull: bool) -> ReviewsFound | Reading:
    """Return the requested data (one pull request, or a repository with some), or the meaning of the errors.

    Incomplete data is requested again, unless the errors are permanent: then missing or forbidden nodes are skipped,
    and the rest is used.
    """
    node = read_node(answer, *(_REVIEWS if is_pull else _PULLS))
    if isinstance(node, Reading):
        if is_pull and node.verdict is Verdict.GONE:
            return ReviewsFound(pulls=[], page_info=None, skipped=["the pull request no longer exists"])
        return node
    if is_pull:
        return ReviewsFound(pulls=[msgspec.json.decode(node, type=Pull)], page_info=None, skipped=[])
    found = msgspec.json.decode(node, type=ReviewedRepository).pull_requests
    pulls = read_items(found.nodes, Pull)
    return ReviewsFound(pulls=pulls.read, page_info=found.page_info, skipped=pulls.skipped)
