"""Tables of the statistics: sums per user, and the documents that are counted in them."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table

from tidegate.storage.documents.document import LONGEST_KIND, LONGEST_TEXT
from tidegate.storage.sql.schema import TABLE_OPTIONS, Json, UtcDateTime, exact_text, metadata

LONGEST_LOGIN = 100

statistics_users = Table(
    "statistics_users",
    metadata,
    Column("user_id", exact_text(LONGEST_TEXT), primary_key=True),
    Column("login", exact_text(LONGEST_LOGIN), nullable=False),
    # Logins that differ only by case are the same.
    Column("login_key", exact_text(LONGEST_LOGIN), nullable=False),
    # GitHub's number of the account; NULL until a document shows it.
    Column("account_id", BigInteger),
    # Raised by every computation; a computation with an older token may not write.
    Column("fence", BigInteger, nullable=False),
    # The computation of another user took documents from this one: the sums below are outdated.
    Column("is_stale", Boolean, nullable=False),
    Column("run_id", BigInteger),
    # NULL until the first computation has ended.
    Column("computed_at", UtcDateTime),
    Column("repositories", Integer, nullable=False),
    Column("stars", BigInteger, nullable=False),
    Column("commits", BigInteger, nullable=False),
    Column("issues", BigInteger, nullable=False),
    Column("pull_requests", BigInteger, nullable=False),
    Column("merged_pull_requests", BigInteger, nullable=False),
    Column("reviews", BigInteger, nullable=False),
    Column("comments", BigInteger, nullable=False),
    Column("summary", Json),
    Index(None, "login_key"),
    Index(None, "is_stale"),
    **TABLE_OPTIONS,
)
"""One row per user: sums over the user's items, written by the computation that changed them."""

statistics_items = Table(
    "statistics_items",
    metadata,
    Column("kind", exact_text(LONGEST_KIND), primary_key=True),
    Column("id", exact_text(LONGEST_TEXT), primary_key=True),
    Column("owner", exact_text(LONGEST_TEXT), nullable=False),
    # `repo:owner/name`, for the repository itself too.
    Column("resource", exact_text(LONGEST_TEXT), nullable=False),
    # The time of the document when it was counted; see `DocumentStore.changes`.
    Column("changed_at", UtcDateTime, nullable=False),
    # The fencing token of the computation that last wrote the row.
    Column("fence", BigInteger, nullable=False),
    # The activity it counts as; NULL if it does not count, like a pull request in the list of issues.
    Column("activity", exact_text(16)),
    # NULL for bots and unknown accounts.
    Column("author_id", BigInteger),
    Column("author_login", exact_text(LONGEST_LOGIN)),
    # In UTC, numbered as by Python's `date.toordinal`.
    Column("day", Integer),
    Column("state", exact_text(16)),
    # From opened to merged, or to closed.
    Column("took_s", BigInteger),
    Column("detail", Json),
    Index(None, "owner", "kind", "changed_at"),
    Index(None, "owner", "resource", "kind"),
    Index(None, "author_id", "activity", "day"),
    Index(None, "day", "activity"),
    **TABLE_OPTIONS,
)
"""One small row per stored document: its facts, without its body."""
