"""What is known of users, computed from what was collected."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, Json, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0006"
down_revision = "0005"

_SUMS = ("stars", "commits", "issues", "pull_requests", "merged_pull_requests", "reviews", "comments")


def upgrade() -> None:
    steps.create_index("documents", ["kind", "owner", "gone_at", "changed_at"])
    steps.create_table(
        "statistics_users",
        sa.Column("user_id", exact_text(200), nullable=False),
        sa.Column("login", exact_text(100), nullable=False),
        sa.Column("login_key", exact_text(100), nullable=False),
        sa.Column("account_id", sa.BigInteger),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("is_stale", sa.Boolean, nullable=False),
        sa.Column("run_id", sa.BigInteger),
        sa.Column("computed_at", UtcDateTime),
        sa.Column("repositories", sa.Integer, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS),
        sa.Column("summary", Json),
        sa.PrimaryKeyConstraint("user_id", name="pk_statistics_users"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("statistics_users", ["login_key"])
    steps.create_index("statistics_users", ["is_stale"])
    steps.create_table(
        "statistics_items",
        sa.Column("kind", exact_text(64), nullable=False),
        sa.Column("id", exact_text(200), nullable=False),
        sa.Column("owner", exact_text(200), nullable=False),
        sa.Column("resource", exact_text(200), nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("activity", exact_text(16)),
        sa.Column("author_id", sa.BigInteger),
        sa.Column("author_login", exact_text(100)),
        sa.Column("day", sa.Integer),
        sa.Column("state", exact_text(16)),
        sa.Column("took_s", sa.BigInteger),
        sa.Column("detail", Json),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_statistics_items"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("statistics_items", ["owner", "kind", "changed_at"])
    steps.create_index("statistics_items", ["owner", "resource", "kind"])
    steps.create_index("statistics_items", ["author_id", "activity", "day"])
    steps.create_index("statistics_items", ["day", "activity"])
