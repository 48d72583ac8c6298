"""What is collected: the kinds of jobs, which of them can be left out, and the kinds of documents they bring."""

from collections.abc import Iterable

from tidegate.kernel.errors import InvalidArgument

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

OF_REPOSITORIES = (REPO_ISSUES, REPO_PRS, REPO_COMMITS, REPO_ISSUE_COMMENTS, REPO_REVIEW_COMMENTS)
"""Those that begin with a repository. Reviews begin with its pull requests."""

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


def require_kinds(include: Iterable[str]) -> frozenset[str]:
    """The kinds to collect: those named, and those without which they could not be found."""
    wanted = frozenset(include)
    for kind in sorted(wanted - ALL):
        raise InvalidArgument("include", kind, f"must be among {', '.join(sorted(ALL))}")
    needed = {USER_BASIC} | ({REPO_PRS} if REPO_REVIEWS in wanted else set[str]())
    return wanted | needed
