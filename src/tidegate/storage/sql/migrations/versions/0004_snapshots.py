"""Snapshots."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import TABLE_OPTIONS, Blob, UtcDateTime, exact_text

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    steps.create_table(
        "prefetch_hours",
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("hour", sa.SmallInteger, autoincrement=False, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False),
        sa.Column("price", sa.Float),
        sa.PrimaryKeyConstraint("day", "hour", name="pk_prefetch_hours"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "snapshot_archives",
        sa.Column("name", exact_text(255), nullable=False),
        sa.Column("kind", exact_text(40), nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("first_key", exact_text(120), nullable=False),
        sa.Column("last_key", exact_text(120), nullable=False),
        sa.Column("entries", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("archived_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_snapshot_archives"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("snapshot_archives", ["kind", "day"])
    steps.create_table(
        "snapshot_history",
        sa.Column("kind", exact_text(40), nullable=False),
        sa.Column("key", exact_text(120), nullable=False),
        sa.Column("version", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("body", Blob, nullable=False),
        sa.Column("hash", exact_text(16), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", "version", name="pk_snapshot_history"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("snapshot_history", ["day", "kind", "key"])
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
    steps.create_table(
        "snapshots",
        sa.Column("kind", exact_text(40), nullable=False),
        sa.Column("key", exact_text(120), nullable=False),
        sa.Column("upstream_id", exact_text(200)),
        sa.Column("body", Blob),
        sa.Column("hash", exact_text(16)),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("last_updated_at", UtcDateTime),
        sa.Column("last_checked_at", UtcDateTime),
        sa.Column("missing_since", UtcDateTime),
        sa.Column("last_asked_at", UtcDateTime),
        sa.Column("next_due_at", UtcDateTime),
        sa.Column("tier", sa.SmallInteger, nullable=False, server_default="2"),
        sa.Column("checks", sa.Integer, nullable=False),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("change_rate", sa.Float),
        sa.Column("sample_place", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("kind", "key", name="pk_snapshots"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("snapshots", ["kind", "sample_place"])
    steps.create_index("snapshots", ["next_due_at"])
    steps.create_index("snapshots", ["tier", "next_due_at"])
