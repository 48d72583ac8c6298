"""Registry of the kinds of GitHub jobs: one declaration per kind.

A declaration says how a kind is named, where its list is, in which order it is read, which documents it produces, and
which columns these have in an export. Everything else (selection by name, readers, exports, progress) is derived from
it, so that a further list of a repository is one more entry of `REGISTRY`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import msgspec

from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents.export.columns import Column
from tidegate.systems.github import columns

USER_BASIC = "USER_BASIC"
USER_EVENTS = "USER_EVENTS"
REPO_ISSUES = "REPO_ISSUES"
REPO_PRS = "REPO_PRS"
REPO_COMMITS = "REPO_COMMITS"
REPO_ISSUE_COMMENTS = "REPO_ISSUE_COMMENTS"
REPO_REVIEW_COMMENTS = "REPO_REVIEW_COMMENTS"
REPO_REVIEWS = "REPO_REVIEWS"

USER, ORGANIZATION, REPOSITORY = "user", "organization", "repository"
REPOSITORY_PREFIX = "repo:"
"""Prefix of the resources that are, or are in, a repository."""


class ListOrder(StrEnum):
    """How a list is read, and how a later run finds what changed."""

    PROFILE = "profile"  # the profile and the list of repositories; one ETag per page
    TIMELINE = "timeline"  # events, the newest first; ETag of the first page, stops six hours before the last run
    UPDATED = "updated"  # the last change first; ETag of the first page, stops at the newest change of the last run
    HISTORY = "history"  # commits from the head; ETag of the first page, stops at the head of the last run
    PULL_REQUESTS = "pull requests"  # GraphQL, after the list of pull requests; skipped where that did not change


class Group(StrEnum):
    """By which collective name a kind can be selected; each group includes the ones before it."""

    ESSENTIAL = "essential"
    ALL = "all"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration of one kind of job."""

    name: str
    """Name in commands and reports."""
    order: ListOrder
    group: Group
    document: str | None = None
    """Kind of document that the items become. None: the reader decides (`user` and `repository`)."""
    columns: Sequence[Column] = ()
    """Export columns of the document."""
    path: str | None = None
    """Path and fixed parameters of the list below the repository. None: the reader knows it."""
    parent: str | None = None
    """Kind whose jobs create the jobs of this kind. None: the run or the repository does."""
    is_in_repository: bool = True
    needs_issues: bool = False
    """Whether the list answers 410 where the issues of the repository are disabled; then it is not requested."""
    can_vanish: bool = False
    """Whether items can be deleted while pages are read, so that page numbers would hide an item."""
    bucket: str = "core"
    """Allowance that the jobs spend."""

    @property
    def query_prefix(self) -> str:
        """The path up to the next query parameter."""
        path = self.path or ""
        return f"{path}&" if "?" in path else f"{path}?"


REGISTRY: Mapping[str, Kind] = MappingProxyType(
    {
        USER_BASIC: Kind(name="profile", order=ListOrder.PROFILE, group=Group.ESSENTIAL, is_in_repository=False),
        USER_EVENTS: Kind(
            name="events",
            order=ListOrder.TIMELINE,
            group=Group.ESSENTIAL,
            document="event",
            columns=columns.EVENT,
            is_in_repository=False,
        ),
        REPO_ISSUES: Kind(
            name="issues",
            order=ListOrder.UPDATED,
            group=Group.ESSENTIAL,
            document="issue",
            columns=columns.ISSUE,
            path="issues?state=all",
            needs_issues=True,
        ),
        REPO_PRS: Kind(
            name="pulls",
            order=ListOrder.UPDATED,
            group=Group.ESSENTIAL,
            document="pull_request",
            columns=columns.PULL_REQUEST,
            path="pulls?state=all",
        ),
        REPO_COMMITS: Kind(
            name="commits",
            order=ListOrder.HISTORY,
            group=Group.ESSENTIAL,
            document="commit",
            columns=columns.COMMIT,
        ),
        REPO_ISSUE_COMMENTS: Kind(
            name="issue-comments",
            order=ListOrder.UPDATED,
            group=Group.ALL,
            document="issue_comment",
            columns=columns.ISSUE_COMMENT,
            path="issues/comments",
            can_vanish=True,
        ),
        REPO_REVIEW_COMMENTS: Kind(
            name="review-comments",
            order=ListOrder.UPDATED,
            group=Group.ALL,
            document="review_comment",
            columns=columns.REVIEW_COMMENT,
            path="pulls/comments",
            can_vanish=True,
        ),
        REPO_REVIEWS: Kind(
            name="reviews",
            order=ListOrder.PULL_REQUESTS,
            group=Group.ALL,
            document="review",
            columns=columns.REVIEW,
            parent=REPO_PRS,
            bucket="graphql",
        ),
    }
)
"""All kinds, in the order in which they are shown."""

ESSENTIAL = frozenset(kind for kind, declared in REGISTRY.items() if declared.group is Group.ESSENTIAL)
ALL = ESSENTIAL | {kind for kind, declared in REGISTRY.items() if declared.group is Group.ALL}

OF_REPOSITORIES = (
    REPO_COMMITS,
    *(
        kind
        for kind, declared in REGISTRY.items()
        if declared.is_in_repository and declared.parent is None and kind != REPO_COMMITS
    ),
)
"""The kinds that begin with a repository, in the order in which they are requested.

The first of them that a run includes is requested before the others, to find out whether the repository can be read.
Commits are best for that: every repository has them, while issues and pull requests can be disabled.
"""

DOCUMENTS = {kind: declared.document for kind, declared in REGISTRY.items() if declared.document is not None}
"""The kind of document that a kind of job produces. USER_BASIC produces two: `user` and `repository`."""

COLUMNS: Mapping[str, Sequence[Column]] = MappingProxyType(
    {
        USER: columns.USER,
        ORGANIZATION: columns.ORGANIZATION,
        REPOSITORY: columns.REPOSITORY,
        **{declared.document: declared.columns for declared in REGISTRY.values() if declared.document is not None},
    }
)
"""The columns of every kind of document, besides those that every document has and the whole `body`."""

NAMES = {kind: declared.name for kind, declared in REGISTRY.items()}
"""The names of the kinds in commands and reports, in the order in which they are shown."""
_BY_NAME = {
    **{name: frozenset({kind}) for kind, name in NAMES.items()},
    **{kind.lower(): frozenset({kind}) for kind in NAMES},
    Group.ESSENTIAL.value: ESSENTIAL,
    Group.ALL.value: ALL,
}


def bucket_of(kind: str) -> str:
    """The allowance that jobs of a kind spend; `core` for kinds of other sources."""
    return REGISTRY[kind].bucket if kind in REGISTRY else "core"


def require_kinds(include: Iterable[str]) -> frozenset[str]:
    """The kinds to collect: those named, and the kinds whose jobs create theirs.

    A name is one of `NAMES`, a kind itself, `essential` or `all`. Raises `InvalidArgument` for any other name.
    """
    named = list(include)
    for name in named:
        if name.lower() not in _BY_NAME:
            raise InvalidArgument("include", name, f"must be among essential, all, {', '.join(NAMES.values())}")
    wanted = frozenset[str]().union(*(_BY_NAME[name.lower()] for name in named))
    parents = {parent for kind in wanted if (parent := REGISTRY[kind].parent) is not None}
    return wanted | parents | {USER_BASIC}
