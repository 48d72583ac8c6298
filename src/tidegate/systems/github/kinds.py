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
from tidegate.systems.github import columns, selections

USER_BASIC = "USER_BASIC"
USER_EVENTS = "USER_EVENTS"
REPO_ISSUES = "REPO_ISSUES"
REPO_PRS = "REPO_PRS"
REPO_COMMITS = "REPO_COMMITS"
REPO_ISSUE_COMMENTS = "REPO_ISSUE_COMMENTS"
REPO_REVIEW_COMMENTS = "REPO_REVIEW_COMMENTS"
REPO_REVIEWS = "REPO_REVIEWS"

REPO_RELEASES = "REPO_RELEASES"
REPO_TAGS = "REPO_TAGS"
REPO_BRANCHES = "REPO_BRANCHES"
REPO_LABELS = "REPO_LABELS"
REPO_MILESTONES = "REPO_MILESTONES"
REPO_FORKS = "REPO_FORKS"
REPO_CONTRIBUTORS = "REPO_CONTRIBUTORS"
REPO_DEPLOYMENTS = "REPO_DEPLOYMENTS"
REPO_WORKFLOW_RUNS = "REPO_WORKFLOW_RUNS"
REPO_ISSUE_EVENTS = "REPO_ISSUE_EVENTS"
REPO_CODE_FREQUENCY = "REPO_CODE_FREQUENCY"
REPO_STARGAZERS = "REPO_STARGAZERS"
REPO_WORKFLOW_JOBS = "REPO_WORKFLOW_JOBS"
REPO_COMMIT_DETAILS = "REPO_COMMIT_DETAILS"
REPO_BRANCH_COMMITS = "REPO_BRANCH_COMMITS"
REPO_TIMELINES = "REPO_TIMELINES"
REPO_DISCUSSIONS = "REPO_DISCUSSIONS"
REPO_DISCUSSION_COMMENTS = "REPO_DISCUSSION_COMMENTS"
REPO_REVIEW_THREADS = "REPO_REVIEW_THREADS"
ORG_MEMBERS = "ORG_MEMBERS"
ORG_TEAMS = "ORG_TEAMS"

USER, ORGANIZATION, REPOSITORY = "user", "organization", "repository"
REPOSITORY_PREFIX = "repo:"
"""Prefix of the resources that are, or are in, a repository."""


class ListOrder(StrEnum):
    """How a list is read, and how a later run finds what changed."""

    PROFILE = "profile"  # the profile and the list of repositories; one ETag per page
    TIMELINE = "timeline"  # events, the newest first; ETag of the first page, stops six hours before the last run
    UPDATED = "updated"  # the last change first; ETag of the first page, stops at the newest change of the last run
    HISTORY = "history"  # commits from the head; ETag of the first page, stops at the head of the last run
    PAGES = "pages"  # all pages, each with its own ETag: only pages that changed are read again
    NEWEST = "newest"  # appended only, the newest first; ETag of the first page, stops at what the last run knew
    DETAILS = "details"  # a list of its own for each new or changed item of the parent
    BATCHES = "batches"  # GraphQL: details of many new or changed items of the parent at once
    CONNECTION = "connection"  # GraphQL, the last change first; costs a query each time, since queries have no ETag
    PULL_REQUESTS = "pull requests"  # GraphQL, after the list of pull requests; skipped if that did not change


class KindGroup(StrEnum):
    """By which collective name a kind can be selected; each group includes the ones before it, apart from the last."""

    ESSENTIAL = "essential"
    CONVERSATIONS = "conversations"
    ALL = "all"
    NAMED = "named"  # only by its own name: it is restricted, costs a call per item, or is never free


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration of one kind of job."""

    name: str
    """Name in commands and reports."""
    order: ListOrder
    group: KindGroup
    document: str | None = None
    """Kind of document that the items become. None: the reader decides (`user` and `repository`)."""
    columns: Sequence[Column] = ()
    """Export columns of the document."""
    path: str | None = None
    """Path and fixed parameters of the list below the repository. None: the reader knows it."""
    parent: str | None = None
    """Kind with jobs that create the jobs of this kind. None: the run or the repository creates them."""
    item: str | None = None
    """Field that identifies an item of the parent, for `DETAILS`."""
    fields: Mapping[str, str] = {}
    """Fields of each document that the item of the parent has, for `DETAILS` and `BATCHES`: by the name in the
    document."""
    is_in_repository: bool = True
    is_in_organization: bool = False
    identity: Sequence[str] = ("id",)
    """Where the id of an item is, from its top level on."""
    identity_of_ghosts: str | None = None
    """Field that identifies an item of a deleted account: there `identity` leads to null."""
    is_unique: bool = True
    """Whether no two repositories have items with the same id."""
    items_key: str | None = None
    """Field of the answer that has the list; None: the answer is the list."""
    media_type: str | None = None
    """Requested media type, if the default representation lacks fields."""
    settled: tuple[str, str] | None = None
    """Field and value of items that do not change any more. Others are read again by the next run."""
    is_single: bool = False
    """Whether the answer is one document instead of a list."""
    is_computed_from_commits: bool = False
    """Whether GitHub answers 204 for a repository without commits. For any other kind, a 204 is a failure."""
    connection: str | None = None
    """Field in GraphQL that has the list: of a repository for `CONNECTION`, of the item of the parent for `BATCHES`."""
    selection: str | None = None
    """Fields of an item of the connection, under the names that the REST API has for them; `id` must be among them, and
    `updated_at` for `CONNECTION`, `node_id` for `BATCHES`."""
    node: str | None = None
    """Type of the item of the parent in GraphQL, for `BATCHES`."""
    replies: tuple[str, str] | None = None
    """Type of an item in GraphQL and its connection of replies, which become documents of the same kind."""
    derived: Mapping[str, tuple[str | int, ...]] = {}
    """Fields of each document that are numbers given as text, and where they are in an item, for `BATCHES`."""
    enabled_by: str | None = None
    """Field of the repository that says whether it has the list, such as `has_issues`; if it is false, the list is
    not requested, and its documents are marked as gone."""
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
        USER_BASIC: Kind(name="profile", order=ListOrder.PROFILE, group=KindGroup.ESSENTIAL, is_in_repository=False),
        USER_EVENTS: Kind(
            name="events",
            order=ListOrder.TIMELINE,
            group=KindGroup.ESSENTIAL,
            document="event",
            columns=columns.EVENT,
            is_in_repository=False,
        ),
        REPO_ISSUES: Kind(
            name="issues",
            order=ListOrder.UPDATED,
            group=KindGroup.ESSENTIAL,
            document="issue",
            columns=columns.ISSUE,
            path="issues?state=all",
            enabled_by="has_issues",
        ),
        REPO_PRS: Kind(
            name="pulls",
            order=ListOrder.UPDATED,
            group=KindGroup.ESSENTIAL,
            document="pull_request",
            columns=columns.PULL_REQUEST,
            path="pulls?state=all",
        ),
        REPO_COMMITS: Kind(
            name="commits",
            order=ListOrder.HISTORY,
            group=KindGroup.ESSENTIAL,
            document="commit",
            columns=columns.COMMIT,
        ),
        REPO_ISSUE_COMMENTS: Kind(
            name="issue-comments",
            order=ListOrder.UPDATED,
            group=KindGroup.CONVERSATIONS,
            document="issue_comment",
            columns=columns.ISSUE_COMMENT,
            path="issues/comments",
            can_vanish=True,
        ),
        REPO_REVIEW_COMMENTS: Kind(
            name="review-comments",
            order=ListOrder.UPDATED,
            group=KindGroup.CONVERSATIONS,
            document="review_comment",
            columns=columns.REVIEW_COMMENT,
            path="pulls/comments",
            can_vanish=True,
        ),
        REPO_REVIEWS: Kind(
            name="reviews",
            order=ListOrder.PULL_REQUESTS,
            group=KindGroup.CONVERSATIONS,
            document="review",
            columns=columns.REVIEW,
            parent=REPO_PRS,
            bucket="graphql",
        ),
        REPO_RELEASES: Kind(
            name="releases",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="release",
            columns=columns.RELEASE,
            path="releases",
        ),
        REPO_TAGS: Kind(
            name="tags",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="tag",
            columns=columns.TAG,
            path="tags",
            identity=("name",),
            is_unique=False,
        ),
        REPO_BRANCHES: Kind(
            name="branches",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="branch",
            columns=columns.BRANCH,
            path="branches",
            identity=("name",),
            is_unique=False,
        ),
        REPO_LABELS: Kind(
            name="labels",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="label",
            columns=columns.LABEL,
            path="labels",
        ),
        REPO_MILESTONES: Kind(
            name="milestones",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="milestone",
            columns=columns.MILESTONE,
            path="milestones?state=all",
        ),
        REPO_FORKS: Kind(
            name="forks",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="fork",
            columns=columns.REPOSITORY,
            path="forks?sort=oldest",
        ),
        REPO_CONTRIBUTORS: Kind(
            name="contributors",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="contributor",
            columns=columns.CONTRIBUTOR,
            path="contributors",
            is_unique=False,
            is_computed_from_commits=True,
        ),
        REPO_DEPLOYMENTS: Kind(
            name="deployments",
            order=ListOrder.NEWEST,
            group=KindGroup.ALL,
            document="deployment",
            columns=columns.DEPLOYMENT,
            path="deployments",
        ),
        REPO_WORKFLOW_RUNS: Kind(
            name="workflow-runs",
            order=ListOrder.NEWEST,
            group=KindGroup.ALL,
            document="workflow_run",
            columns=columns.WORKFLOW_RUN,
            path="actions/runs",
            items_key="workflow_runs",
            settled=("status", "completed"),
        ),
        REPO_ISSUE_EVENTS: Kind(
            name="issue-events",
            order=ListOrder.NEWEST,
            group=KindGroup.ALL,
            document="issue_event",
            columns=columns.ISSUE_EVENT,
            path="issues/events",
        ),
        REPO_CODE_FREQUENCY: Kind(
            name="code-frequency",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="code_frequency",
            columns=columns.CODE_FREQUENCY,
            path="stats/code_frequency",
            is_single=True,
            is_computed_from_commits=True,
        ),
        REPO_STARGAZERS: Kind(
            name="stargazers",
            order=ListOrder.PAGES,
            group=KindGroup.NAMED,
            document="stargazer",
            columns=columns.STARGAZER,
            path="stargazers",
            identity=("user", "id"),
            identity_of_ghosts="starred_at",
            is_unique=False,
            media_type="application/vnd.github.star+json",
        ),
        REPO_WORKFLOW_JOBS: Kind(
            name="workflow-jobs",
            order=ListOrder.DETAILS,
            group=KindGroup.NAMED,
            document="workflow_job",
            columns=columns.WORKFLOW_JOB,
            parent=REPO_WORKFLOW_RUNS,
            item="id",
            path="actions/runs/{id}/jobs",
            items_key="jobs",
        ),
        REPO_COMMIT_DETAILS: Kind(
            name="commit-details",
            order=ListOrder.DETAILS,
            group=KindGroup.NAMED,
            document="commit_detail",
            columns=columns.COMMIT_DETAIL,
            parent=REPO_COMMITS,
            item="sha",
            path="commits/{sha}",
            identity=("sha",),
            is_unique=False,
            is_single=True,
        ),
        REPO_BRANCH_COMMITS: Kind(
            name="branch-commits",
            order=ListOrder.DETAILS,
            group=KindGroup.NAMED,
            document="branch_commit",
            columns=columns.BRANCH_COMMIT,
            parent=REPO_BRANCHES,
            item="name",
            path="compare/{default_branch}...{head}",
            fields={"branch": "name"},
            items_key="commits",
            identity=("sha",),
            is_unique=False,
        ),
        REPO_TIMELINES: Kind(
            name="timelines",
            order=ListOrder.DETAILS,
            group=KindGroup.NAMED,
            document="timeline_event",
            columns=columns.TIMELINE_EVENT,
            parent=REPO_ISSUES,
            item="number",
            path="issues/{number}/timeline",
            fields={"issue_number": "number"},
            identity=("id", "sha", "node_id"),
            is_unique=False,
        ),
        REPO_DISCUSSIONS: Kind(
            name="discussions",
            order=ListOrder.CONNECTION,
            group=KindGroup.NAMED,
            document="discussion",
            columns=columns.DISCUSSION,
            connection="discussions",
            selection=selections.DISCUSSION,
            enabled_by="has_discussions",
            bucket="graphql",
        ),
        REPO_DISCUSSION_COMMENTS: Kind(
            name="discussion-comments",
            order=ListOrder.BATCHES,
            group=KindGroup.NAMED,
            document="discussion_comment",
            columns=columns.DISCUSSION_COMMENT,
            parent=REPO_DISCUSSIONS,
            node="Discussion",
            connection="comments",
            selection=selections.DISCUSSION_COMMENT,
            replies=("DiscussionComment", "replies"),
            fields={"discussion_number": "number"},
            bucket="graphql",
        ),
        REPO_REVIEW_THREADS: Kind(
            name="review-threads",
            order=ListOrder.BATCHES,
            group=KindGroup.NAMED,
            document="review_thread",
            columns=columns.REVIEW_THREAD,
            parent=REPO_PRS,
            node="PullRequest",
            connection="reviewThreads",
            selection=selections.REVIEW_THREAD,
            fields={"pull_request_number": "number"},
            derived={"review_comment_id": ("comments", "nodes", 0, "id")},
            bucket="graphql",
        ),
        ORG_MEMBERS: Kind(
            name="members",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="member",
            columns=columns.MEMBER,
            path="members",
            is_in_repository=False,
            is_in_organization=True,
            is_unique=False,
        ),
        ORG_TEAMS: Kind(
            name="teams",
            order=ListOrder.PAGES,
            group=KindGroup.ALL,
            document="team",
            columns=columns.TEAM,
            path="teams",
            is_in_repository=False,
            is_in_organization=True,
        ),
    }
)
"""All kinds, in the order in which they are shown."""

ESSENTIAL = frozenset(kind for kind, declared in REGISTRY.items() if declared.group is KindGroup.ESSENTIAL)
CONVERSATIONS = ESSENTIAL | {kind for kind, declared in REGISTRY.items() if declared.group is KindGroup.CONVERSATIONS}
ALL = CONVERSATIONS | {kind for kind, declared in REGISTRY.items() if declared.group is KindGroup.ALL}

OF_ORGANIZATIONS = tuple(kind for kind, declared in REGISTRY.items() if declared.is_in_organization)
"""The kinds that begin with an organization."""

DETAILS = tuple(kind for kind, declared in REGISTRY.items() if declared.order in (ListOrder.DETAILS, ListOrder.BATCHES))
"""The kinds that are read for single items of another kind."""

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
    KindGroup.ESSENTIAL.value: ESSENTIAL,
    KindGroup.CONVERSATIONS.value: CONVERSATIONS,
    KindGroup.ALL.value: ALL,
}


def bucket_of(kind: str) -> str:
    """The allowance that jobs of a kind spend; `core` for kinds of other sources."""
    return REGISTRY[kind].bucket if kind in REGISTRY else "core"


def require_kinds(include: Iterable[str]) -> frozenset[str]:
    """The kinds to collect: the given ones, and the kinds with jobs that create theirs.

    A name is one of `NAMES`, a kind itself, `essential`, `conversations` or `all`. Raises `InvalidArgument` for
    any other name.
    """
    named = list(include)
    for name in named:
        if name.lower() not in _BY_NAME:
            words = [*(group.value for group in KindGroup if group is not KindGroup.NAMED), *NAMES.values()]
            raise InvalidArgument("include", name, f"must be among {', '.join(words)}")
    wanted = frozenset[str]().union(*(_BY_NAME[name.lower()] for name in named))
    parents = {parent for kind in wanted if (parent := REGISTRY[kind].parent) is not None}
    return wanted | parents | {USER_BASIC}
