"""Deliveries of GitHub's webhooks."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, Blob, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0033"
down_revision = "0032"


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
