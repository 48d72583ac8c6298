"""Campaigns."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    steps.create_table(
        "campaign_entries",
        sa.Column("campaign", exact_text(64), nullable=False),
        sa.Column("user_id", exact_text(128), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("entry_key", exact_text(128)),
        sa.Column("outcome", exact_text(16), nullable=False),
        sa.Column("code", exact_text(64)),
        sa.Column("points", sa.Integer, nullable=False),
        sa.Column("reason", exact_text(500)),
        sa.Column("decided_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("campaign", "user_id", name="pk_campaign_entries"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("campaign_entries", ["campaign", "number"])
    steps.create_table(
        "campaigns",
        sa.Column("id", exact_text(64), nullable=False),
        sa.Column("kind", exact_text(32), nullable=False),
        sa.Column("title", exact_text(200), nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("starts_at", UtcDateTime),
        sa.Column("ends_at", UtcDateTime),
        sa.Column("total_count", sa.Integer, nullable=False),
        sa.Column("stock", sa.Integer),
        sa.Column("points", sa.Integer, nullable=False),
        sa.Column("issued", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_campaigns"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "point_accounts",
        sa.Column("user_id", exact_text(128), nullable=False),
        sa.Column("points", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_point_accounts"),
        options=TABLE_OPTIONS,
    )
