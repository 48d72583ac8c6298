"""Runs that begin by the clock."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import NUMBERED_TABLE_OPTIONS, Json, UtcDateTime, ascending_key, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    steps.create_table(
        "collection_schedules",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("user_id", exact_text(200), nullable=False),
        sa.Column("login", exact_text(200), nullable=False),
        sa.Column("options", Json, nullable=False),
        sa.Column("cron", exact_text(100), nullable=False),
        sa.Column("timezone", exact_text(64), nullable=False),
        sa.Column("next_at", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("last_due_at", UtcDateTime),
        sa.Column("last_run_id", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_collection_schedules"),
        sa.UniqueConstraint(
            "source",
            "user_id",
            "cron",
            "timezone",
            name="uq_collection_schedules_source_user_id_cron_timezone",
        ),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("collection_schedules", ["next_at"])
