"""Export columns of GitHub's documents: which fields of an item become columns, and of which type.

Columns have the names of GitHub's fields. The prefix `github_` distinguishes a field from a column that every document
has: `created_at` is when the document was first written, `github_created_at` when the issue was opened. The registry in
`kinds` assigns the columns to the kinds of documents.
"""

from tidegate.storage.documents.export.columns import (
    EACH,
    number_in_link,
    present,
    text,
    texts,
    time,
    truth,
    whole,
)

ID = whole("github_id", "id")
TIMES = (time("github_created_at", "created_at"), time("github_updated_at", "updated_at"))
AUTHOR = (text("user_login", "user", "login"), whole("user_id", "user", "id"))
URL = text("html_url")

USER = (
    *(ID, text("login"), text("name"), text("type"), truth("site_admin")),
    *(text("company"), text("location"), text("blog"), text("email"), text("bio"), text("twitter_username")),
    *(truth("hireable"), whole("public_repos"), whole("public_gists"), whole("followers"), whole("following")),
    *TIMES,
    URL,
)

ORGANIZATION = (
    *(ID, text("login"), text("name"), text("description"), text("company"), text("location"), text("blog")),
    *(text("email"), text("twitter_username"), truth("is_verified"), whole("public_repos"), whole("followers")),
    *TIMES,
    URL,
)

REPOSITORY = (
    *(ID, text("name"), text("full_name"), text("owner_login", "owner", "login"), whole("owner_id", "owner", "id")),
    *(text("description"), text("homepage"), text("language"), text("license", "license", "spdx_id"), texts("topics")),
    *(truth("private"), truth("fork"), truth("archived"), truth("disabled"), truth("is_template")),
    *(text("visibility"), text("default_branch"), whole("size"), whole("stargazers_count"), whole("forks_count")),
    *(whole("open_issues_count"), truth("has_issues"), truth("has_wiki"), truth("has_discussions")),
    *TIMES,
    time("pushed_at"),
    URL,
)

EVENT = (
    *(text("type"), text("actor_login", "actor", "login"), whole("actor_id", "actor", "id")),
    *(text("repo_name", "repo", "name"), whole("repo_id", "repo", "id"), text("org_login", "org", "login")),
    *(text("action", "payload", "action"), text("ref", "payload", "ref"), text("ref_type", "payload", "ref_type")),
    *(whole("push_id", "payload", "push_id"), text("head", "payload", "head"), text("before", "payload", "before")),
    *(truth("public"), time("github_created_at", "created_at")),
)

THREAD = (
    *(ID, whole("number"), text("title"), text("state"), truth("locked"), text("active_lock_reason")),
    *AUTHOR,
    *(
        text("author_association"),
        texts("labels", "labels", EACH, "name"),
        texts("assignees", "assignees", EACH, "login"),
    ),
    text("milestone", "milestone", "title"),
    *TIMES,
    time("closed_at"),
    URL,
)
"""What an issue and a pull request have in common."""

ISSUE = (
    *THREAD,
    *(text("state_reason"), whole("comments"), whole("reactions", "reactions", "total_count")),
    present("is_pull_request", "pull_request"),
)

PULL_REQUEST = (
    *THREAD,
    *(truth("draft"), time("merged_at"), text("merge_commit_sha")),
    *(text("head_ref", "head", "ref"), text("head_sha", "head", "sha"), text("head_repo", "head", "repo", "full_name")),
    *(text("base_ref", "base", "ref"), text("base_sha", "base", "sha"), text("base_repo", "base", "repo", "full_name")),
    texts("requested_reviewers", "requested_reviewers", EACH, "login"),
)

COMMIT = (
    *(text("sha"), text("message", "commit", "message"), texts("parents", "parents", EACH, "sha")),
    *(text("author_login", "author", "login"), whole("author_id", "author", "id")),
    *(text("author_name", "commit", "author", "name"), text("author_email", "commit", "author", "email")),
    time("authored_at", "commit", "author", "date"),
    *(text("committer_login", "committer", "login"), whole("committer_id", "committer", "id")),
    *(text("committer_name", "commit", "committer", "name"), text("committer_email", "commit", "committer", "email")),
    time("committed_at", "commit", "committer", "date"),
    *(truth("verified", "commit", "verification", "verified"), whole("comment_count", "commit", "comment_count")),
    *(text("tree_sha", "commit", "tree", "sha"), URL),
)

COMMENT = (
    ID,
    *AUTHOR,
    *(text("author_association"), text("text", "body"), whole("reactions", "reactions", "total_count")),
    *TIMES,
    URL,
)
"""What all comments have in common; `body` would be the name of the whole document."""

ISSUE_COMMENT = (*COMMENT, number_in_link("issue_number", "issue_url"))

REVIEW_COMMENT = (
    *COMMENT,
    *(number_in_link("pull_request_number", "pull_request_url"), text("path"), whole("line"), text("side")),
    *(text("commit_id"), text("diff_hunk"), whole("in_reply_to_id"), whole("pull_request_review_id")),
)

REVIEW = (
    *(ID, whole("pull_request_number"), *AUTHOR, text("author_association"), text("state"), text("text", "body")),
    *(text("commit_id"), time("submitted_at"), URL),
)

RELEASE = (
    *(ID, text("tag_name"), text("name"), text("target_commitish"), truth("draft"), truth("prerelease")),
    *(text("author_login", "author", "login"), whole("author_id", "author", "id")),
    *(time("github_created_at", "created_at"), time("published_at"), texts("assets", "assets", EACH, "name")),
    URL,
)

TAG = (text("name"), text("commit_sha", "commit", "sha"))

BRANCH = (text("name"), text("commit_sha", "commit", "sha"), truth("protected"))

LABEL = (ID, text("name"), text("color"), text("description"), truth("default"))

MILESTONE = (
    *(ID, whole("number"), text("title"), text("state"), text("description"), whole("open_issues")),
    *(whole("closed_issues"), text("creator_login", "creator", "login"), time("due_on"), time("closed_at")),
    *TIMES,
    URL,
)

CONTRIBUTOR = (ID, text("login"), text("type"), whole("contributions"))

DEPLOYMENT = (
    *(ID, text("environment"), text("ref"), text("sha"), text("task"), truth("production_environment")),
    *(truth("transient_environment"), text("creator_login", "creator", "login"), whole("creator_id", "creator", "id")),
    *TIMES,
)

WORKFLOW_RUN = (
    *(ID, whole("run_number"), whole("run_attempt"), text("name"), text("event"), text("status"), text("conclusion")),
    *(whole("workflow_id"), text("head_branch"), text("head_sha"), text("actor_login", "actor", "login")),
    *(time("run_started_at"), *TIMES),
    URL,
)

ISSUE_EVENT = (
    *(ID, text("event"), text("actor_login", "actor", "login"), whole("actor_id", "actor", "id")),
    *(whole("issue_number", "issue", "number"), text("label", "label", "name"), text("commit_id")),
    time("github_created_at", "created_at"),
)

CODE_FREQUENCY = ()

STARGAZER = (text("user_login", "user", "login"), whole("user_id", "user", "id"), time("starred_at"))

WORKFLOW_JOB = (
    *(ID, whole("run_id"), whole("run_attempt"), text("name"), text("status"), text("conclusion")),
    *(time("started_at"), time("completed_at"), text("runner_name"), texts("labels"), URL),
)

COMMIT_DETAIL = (
    *(text("sha"), whole("additions", "stats", "additions"), whole("deletions", "stats", "deletions")),
    texts("files", "files", EACH, "filename"),
)

BRANCH_COMMIT = (text("branch"), *COMMIT)

TIMELINE_EVENT = (
    *(whole("issue_number"), ID, text("event"), text("actor_login", "actor", "login")),
    *(whole("actor_id", "actor", "id"), text("label", "label", "name"), text("state"), text("text", "body")),
    *(text("commit_id"), text("sha"), time("github_created_at", "created_at"), time("submitted_at")),
)

DISCUSSION = (
    *(ID, whole("number"), text("title"), text("text", "body"), *AUTHOR, text("author_association")),
    *(text("category", "category", "name"), truth("is_answered"), time("answer_chosen_at")),
    *(text("answer_chosen_by_login", "answer_chosen_by", "login"), whole("answer_id", "answer", "id")),
    *(truth("closed"), time("closed_at")),
    *(text("state_reason"), truth("locked"), whole("upvotes"), whole("comments", "comments", "total_count")),
    *TIMES,
    URL,
)

DISCUSSION_COMMENT = (
    *(ID, whole("discussion_number"), whole("reply_to_id"), text("text", "body"), *AUTHOR),
    *(text("author_association"), truth("is_answer"), whole("upvotes"), *TIMES, URL),
)

REVIEW_THREAD = (
    *(whole("pull_request_number"), truth("is_resolved"), truth("is_outdated"), truth("is_collapsed"), text("path")),
    *(whole("line"), whole("start_line"), whole("original_line"), text("diff_side"), text("subject_type")),
    *(text("resolved_by_login", "resolved_by", "login"), whole("resolved_by_id", "resolved_by", "id")),
    *(whole("review_comment_id"), whole("comments", "comments", "total_count")),
)

MEMBER = (ID, text("login"), text("type"), truth("site_admin"))

TEAM = (ID, text("name"), text("slug"), text("description"), text("privacy"), text("permission"))
