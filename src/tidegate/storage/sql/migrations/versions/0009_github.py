"""Statistics and webhooks of GitHub."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import TABLE_OPTIONS, Blob, Json, UtcDateTime, exact_text

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    steps.create_table(
        "github_deliveries",
        sa.Column("id", exact_text(100), nullable=False),
        sa.Column("event", exact_text(60), nullable=False),
        sa.Column("action", exact_text(60)),
        sa.Column("repository", exact_text(200), nullable=False),
        sa.Column("received_at", UtcDateTime, nullable=False),
        sa.Column("applied_at", UtcDateTime),
        sa.Column("documents", sa.Integer),
        sa.Column("body", Blob),
        sa.PrimaryKeyConstraint("id", name="pk_github_deliveries"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("github_deliveries", ["received_at"])
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
    steps.create_index("statistics_items", ["author_id", "activity", "day"])
    steps.create_index("statistics_items", ["day", "activity"])
    steps.create_index("statistics_items", ["owner", "kind", "changed_at"])
    steps.create_index("statistics_items", ["owner", "resource", "kind"])
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
        sa.Column("stars", sa.BigInteger, nullable=False),
        sa.Column("commits", sa.BigInteger, nullable=False),
        sa.Column("issues", sa.BigInteger, nullable=False),
        sa.Column("pull_requests", sa.BigInteger, nullable=False),
        sa.Column("merged_pull_requests", sa.BigInteger, nullable=False),
        sa.Column("reviews", sa.BigInteger, nullable=False),
        sa.Column("comments", sa.BigInteger, nullable=False),
        sa.Column("summary", Json),
        sa.PrimaryKeyConstraint("user_id", name="pk_statistics_users"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("statistics_users", ["is_stale"])
    steps.create_index("statistics_users", ["login_key"])
