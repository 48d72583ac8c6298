"""Snapshots of subjects, and the sparse list of those in trouble."""

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import MEDIUMBLOB

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    steps.create_table(
        "snapshots",
        sa.Column("kind", exact_text(40), nullable=False),
        sa.Column("key", exact_text(120), nullable=False),
        sa.Column("upstream_id", exact_text(200)),
        sa.Column("body", sa.LargeBinary().with_variant(MEDIUMBLOB(), "mysql", "mariadb")),
        sa.Column("hash", exact_text(16)),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("last_updated_at", UtcDateTime),
        sa.Column("last_checked_at", UtcDateTime),
        sa.Column("missing_since", UtcDateTime),
        sa.Column("last_asked_at", UtcDateTime),
        sa.Column("next_due_at", UtcDateTime),
        sa.Column("checks", sa.Integer, nullable=False),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("change_rate", sa.Float),
        sa.PrimaryKeyConstraint("kind", "key", name="pk_snapshots"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("snapshots", ["next_due_at"])
    steps.create_table(
        "snapshot_status",
        sa.Column("kind", exact_text(40), nullable=False),
        sa.Column("key", exact_text(120), nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("reason", exact_text(40), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", name="pk_snapshot_status"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("snapshot_status", ["state", "changed_at"])
