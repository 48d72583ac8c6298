"""Foreign keys of GitHub's documents in a warehouse: columns that refer to other documents.

They follow from the names of the columns, so that a new kind of document has them without a change here. They are
documented and not enforced: an account that was not collected has no row in `user`, and a withheld list has no rows.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegate.systems.github.kinds import COLUMNS, DOCUMENTS, REGISTRY, REPOSITORY, USER


class Relation(NamedTuple):
    """Columns that refer to columns of another table."""

    columns: tuple[str, ...]
    table: str
    keys: tuple[str, ...]


_BY_NAME: Mapping[str, Relation] = {
    **{
        name: Relation((name,), USER, ("github_id",))
        for name in ("user_id", "author_id", "committer_id", "actor_id", "owner_id", "resolved_by_id")
    },
    "repo_id": Relation(("repo_id",), REPOSITORY, ("github_id",)),
    "issue_number": Relation(("resource_key", "issue_number"), "issue", ("resource_key", "number")),
    "pull_request_number": Relation(
        ("resource_key", "pull_request_number"), "pull_request", ("resource_key", "number")
    ),
    "pull_request_review_id": Relation(("pull_request_review_id",), "review", ("github_id",)),
    "review_comment_id": Relation(("review_comment_id",), "review_comment", ("github_id",)),
    "discussion_number": Relation(("resource_key", "discussion_number"), "discussion", ("resource_key", "number")),
    "reply_to_id": Relation(("reply_to_id",), "discussion_comment", ("github_id",)),
    "answer_id": Relation(("answer_id",), "discussion_comment", ("github_id",)),
    "in_reply_to_id": Relation(("in_reply_to_id",), "review_comment", ("github_id",)),
}
_IN_REPOSITORY = {
    DOCUMENTS[kind] for kind, declared in REGISTRY.items() if kind in DOCUMENTS and declared.is_in_repository
}


def relations(document: str) -> Sequence[Relation]:
    """The foreign keys of a kind of document."""
    names = [column.name for column in COLUMNS[document]]
    found = [_BY_NAME[name] for name in names if name in _BY_NAME and _BY_NAME[name].table in COLUMNS]
    if document in _IN_REPOSITORY:
        found.insert(0, Relation(("resource_key",), REPOSITORY, ("full_name",)))
    return found
