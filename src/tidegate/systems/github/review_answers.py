"""Parses GraphQL answers with reviews: data, errors, or both.

A node that is null or has an unexpected shape is skipped. The lists and their page information are required: an answer
without them is not an empty list.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from tidegate.engine.items import read_items
from tidegate.engine.source import Reading, Verdict
from tidegate.engine.upstream import Answer
from tidegate.systems.github.graphql_answers import PageInfo, read_node


class Author(msgspec.Struct, rename="camel"):
    """The author of a review; some authors have no number in GraphQL."""

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
    node = read_node(answer)
    if isinstance(node, Reading):
        if is_pull and node.verdict is Verdict.GONE:
            return ReviewsFound(pulls=[], page_info=None, skipped=["the pull request no longer exists"])
        return node
    if is_pull:
        return ReviewsFound(pulls=[msgspec.json.decode(node, type=Pull)], page_info=None, skipped=[])
    found = msgspec.json.decode(node, type=ReviewedRepository).pull_requests
    pulls = read_items(found.nodes, Pull)
    return ReviewsFound(pulls=pulls.read, page_info=found.page_info, skipped=pulls.skipped)
