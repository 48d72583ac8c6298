"""What is collected: the kinds of jobs, which of them can be left out, and the kinds of documents they bring."""

from collections.abc import Iterable

from tidegate.core.errors import InvalidArgument

USER_BASIC = "USER_BASIC"
USER_EVENTS = "USER_EVENTS"
REPO_ISSUES = "REPO_ISSUES"
REPO_PRS = "REPO_PRS"
REPO_COMMITS = "REPO_COMMITS"
REPO_ISSUE_COMMENTS = "REPO_ISSUE_COMMENTS"
REPO_REVIEW_COMMENTS = "REPO_REVIEW_COMMENTS"
REPO_REVIEWS = "REPO_REVIEWS"

ESSENTIAL = frozenset({USER_BASIC, USER_EVENTS, REPO_ISSUES, REPO_PRS, REPO_COMMITS})
ALL = ESSENTIAL | {REPO_ISSUE_COMMENTS, REPO_REVIEW_COMMENTS, REPO_REVIEWS}

OF_REPOSITORIES = (REPO_COMMITS, REPO_ISSUES, REPO_PRS, REPO_ISSUE_COMMENTS, REPO_REVIEW_COMMENTS)
"""Those that begin with a repository. Reviews begin with its pull requests.

The first of them that a run wants goes ahead and tells whether the repository can be read at all. Commits are best for
that: every repository has them, while issues and pull requests can be switched off.
"""

DOCUMENTS = {
    USER_EVENTS: "event",
    REPO_ISSUES: "issue",
    REPO_PRS: "pull_request",
    REPO_COMMITS: "commit",
    REPO_ISSUE_COMMENTS: "issue_comment",
    REPO_REVIEW_COMMENTS: "review_comment",
    REPO_REVIEWS: "review",
}
"""The kind of document that a kind of job brings. USER_BASIC brings two: `user` and `repository`."""
USER, REPOSITORY = "user", "repository"
REPOSITORY_PREFIX = "repo:"
"""Of the resources that are, or are in, a repository."""

NAMES = {
    USER_BASIC: "profile",
    USER_EVENTS: "events",
    REPO_ISSUES: "issues",
    REPO_PRS: "pulls",
    REPO_COMMITS: "commits",
    REPO_ISSUE_COMMENTS: "issue-comments",
    REPO_REVIEW_COMMENTS: "review-comments",
    REPO_REVIEWS: "reviews",
}
"""What people call the kinds of jobs, in the order in which they are shown."""
_BY_NAME = {
    **{name: frozenset({kind}) for kind, name in NAMES.items()},
    **{kind.lower(): frozenset({kind}) for kind in NAMES},
    "essential": ESSENTIAL,
    "all": ALL,
}


def bucket_of(kind: str) -> str:
    """The allowance that jobs of a kind spend."""
    return "graphql" if kind == REPO_REVIEWS else "core"


def require_kinds(include: Iterable[str]) -> frozenset[str]:
    """The kinds to collect: those named, and those without which they could not be found.

    A name is one of `NAMES`, a kind itself, `essential` or `all`.
    """
    named = list(include)
    for name in named:
        if name.lower() not in _BY_NAME:
            raise InvalidArgument("include", name, f"must be among essential, all, {', '.join(NAMES.values())}")
    wanted = frozenset[str]().union(*(_BY_NAME[name.lower()] for name in named))
    needed = {USER_BASIC} | ({REPO_PRS} if REPO_REVIEWS in wanted else set[str]())
    return wanted | needed
