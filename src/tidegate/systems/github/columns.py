"""Which fields of GitHub's items become columns when they are exported, and of which type.

Names are GitHub's own. Where every document has a column of that name already, `github_` stands before it: `created_at`
is when we first wrote the document, `github_created_at` when the issue was opened.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tidegate.storage.documents.export.columns import (
    EACH,
    Column,
    number_in_link,
    present,
    text,
    texts,
    time,
    truth,
    whole,
)
from tidegate.systems.github import kinds

_ID = whole("github_id", "id")
_TIMES = (time("github_created_at", "created_at"), time("github_updated_at", "updated_at"))
_AUTHOR = (text("user_login", "user", "login"), whole("user_id", "user", "id"))
_URL = text("html_url")

_USER = (
    *(_ID, text("login"), text("name"), text("type"), truth("site_admin")),
    *(text("company"), text("location"), text("blog"), text("email"), text("bio"), text("twitter_username")),
    *(truth("hireable"), whole("public_repos"), whole("public_gists"), whole("followers"), whole("following")),
    *_TIMES,
    _URL,
)

_REPOSITORY = (
    *(_ID, text("name"), text("full_name"), text("owner_login", "owner", "login"), whole("owner_id", "owner", "id")),
    *(text("description"), text("homepage"), text("language"), text("license", "license", "spdx_id"), texts("topics")),
    *(truth("private"), truth("fork"), truth("archived"), truth("disabled"), truth("is_template")),
    *(text("visibility"), text("default_branch"), whole("size"), whole("stargazers_count"), whole("forks_count")),
    *(whole("open_issues_count"), truth("has_issues"), truth("has_wiki"), truth("has_discussions")),
    *_TIMES,
    time("pushed_at"),
    _URL,
)

_EVENT = (
    *(text("type"), text("actor_login", "actor", "login"), whole("actor_id", "actor", "id")),
    *(text("repo_name", "repo", "name"), whole("repo_id", "repo", "id"), text("org_login", "org", "login")),
    *(text("action", "payload", "action"), text("ref", "payload", "ref"), text("ref_type", "payload", "ref_type")),
    *(whole("push_id", "payload", "push_id"), text("head", "payload", "head"), text("before", "payload", "before")),
    *(truth("public"), time("github_created_at", "created_at")),
)

_THREAD = (
    *(_ID, whole("number"), text("title"), text("state"), truth("locked"), text("active_lock_reason")),
    *_AUTHOR,
    *(
        text("author_association"),
        texts("labels", "labels", EACH, "name"),
        texts("assignees", "assignees", EACH, "login"),
    ),
    text("milestone", "milestone", "title"),
    *_TIMES,
    time("closed_at"),
    _URL,
)
"""What an issue and a pull request have in common."""

_ISSUE = (
    *_THREAD,
    *(text("state_reason"), whole("comments"), whole("reactions", "reactions", "total_count")),
    present("is_pull_request", "pull_request"),
)

_PULL_REQUEST = (
    *_THREAD,
    *(truth("draft"), time("merged_at"), text("merge_commit_sha")),
    *(text("head_ref", "head", "ref"), text("head_sha", "head", "sha"), text("head_repo", "head", "repo", "full_name")),
    *(text("base_ref", "base", "ref"), text("base_sha", "base", "sha"), text("base_repo", "base", "repo", "full_name")),
    texts("requested_reviewers", "requested_reviewers", EACH, "login"),
)

_COMMIT = (
    *(text("sha"), text("message", "commit", "message"), texts("parents", "parents", EACH, "sha")),
    *(text("author_login", "author", "login"), whole("author_id", "author", "id")),
    *(text("author_name", "commit", "author", "name"), text("author_email", "commit", "author", "email")),
    time("authored_at", "commit", "author", "date"),
    *(text("committer_login", "committer", "login"), whole("committer_id", "committer", "id")),
    *(text("committer_name", "commit", "committer", "name"), text("committer_email", "commit", "committer", "email")),
    time("committed_at", "commit", "committer", "date"),
    *(truth("verified", "commit", "verification", "verified"), whole("comment_count", "commit", "comment_count")),
    *(text("tree_sha", "commit", "tree", "sha"), _URL),
)

_COMMENT = (
    _ID,
    *_AUTHOR,
    *(text("author_association"), text("text", "body"), whole("reactions", "reactions", "total_count")),
    *_TIMES,
    _URL,
)
"""What all comments have in common; `body` would be the name of the whole document."""

_ISSUE_COMMENT = (*_COMMENT, number_in_link("issue_number", "issue_url"))

_REVIEW_COMMENT = (
    *_COMMENT,
    *(number_in_link("pull_request_number", "pull_request_url"), text("path"), whole("line"), text("side")),
    *(text("commit_id"), text("diff_hunk"), whole("in_reply_to_id"), whole("pull_request_review_id")),
)

_REVIEW = (
    *(_ID, whole("pull_request_number"), *_AUTHOR, text("author_association"), text("state"), text("text", "body")),
    *(text("commit_id"), time("submitted_at"), _URL),
)

COLUMNS: Mapping[str, Sequence[Column]] = MappingProxyType(
    {
        kinds.USER: _USER,
        kinds.REPOSITORY: _REPOSITORY,
        kinds.DOCUMENTS[kinds.REPO_ISSUES]: _ISSUE,
        kinds.DOCUMENTS[kinds.REPO_PRS]: _PULL_REQUEST,
        kinds.DOCUMENTS[kinds.REPO_COMMITS]: _COMMIT,
        kinds.DOCUMENTS[kinds.USER_EVENTS]: _EVENT,
        kinds.DOCUMENTS[kinds.REPO_ISSUE_COMMENTS]: _ISSUE_COMMENT,
        kinds.DOCUMENTS[kinds.REPO_REVIEW_COMMENTS]: _REVIEW_COMMENT,
        kinds.DOCUMENTS[kinds.REPO_REVIEWS]: _REVIEW,
    }
)
"""The columns of every kind of document, besides those that every document has and the whole `body`."""
