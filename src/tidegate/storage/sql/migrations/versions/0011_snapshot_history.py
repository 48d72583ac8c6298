"""The history of snapshots, its archive, and the budget of prefetching."""

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import MEDIUMBLOB

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    steps.create_table(
        "snapshot_history",
        sa.Column("kind", exact_text(40), nullable=False),
        sa.Column("key", exact_text(120), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("body", sa.LargeBinary().with_variant(MEDIUMBLOB(), "mysql", "mariadb"), nullable=False),
        sa.Column("hash", exact_text(16), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", "version", name="pk_snapshot_history"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("snapshot_history", ["day", "kind", "key"])
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
        "prefetch_hours",
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("hour", sa.SmallInteger, nullable=False, autoincrement=False),
        sa.Column("spent", sa.BigInteger, nullable=False),
        sa.Column("price", sa.Float),
        sa.PrimaryKeyConstraint("day", "hour", name="pk_prefetch_hours"),
        options=TABLE_OPTIONS,
    )
