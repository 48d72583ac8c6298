"""Tables of schedules and firings."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text, UniqueConstraint

from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
    metadata,
)

collection_schedules = Table(
    "collection_schedules",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("source", exact_text(40), nullable=False),
    Column("user_id", exact_text(200), nullable=False),
    Column("login", exact_text(200), nullable=False),
    Column("options", Json, nullable=False),
    Column("cron", exact_text(100), nullable=False),
    Column("timezone", exact_text(64), nullable=False),
    # NULL while it is paused. Changed by the transaction that starts the run, so that a due time starts at most one.
    Column("next_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_due_at", UtcDateTime),
    Column("last_run_id", BigInteger),
    # Why the last due time started no run.
    Column("last_error", Text),
    UniqueConstraint("source", "user_id", "cron", "timezone"),
    Index(None, "next_at"),
    **NUMBERED_TABLE_OPTIONS,
)
"""Cron expressions that start runs. A subject can have several, such as nightly changes and a monthly full run."""

schedule_firings = Table(
    "schedule_firings",
    metadata,
    Column(
        "schedule_id",
        BigInteger,
        ForeignKey("collection_schedules.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    # The due time, or the key from the caller.
    Column("firing_key", exact_text(200), primary_key=True),
    Column("fired_at", UtcDateTime, nullable=False, index=True),
    Column("outcome", exact_text(16), nullable=False),
    Column("run_id", BigInteger),
    Column("reason", Text),
    **TABLE_OPTIONS,
)
"""Recorded firings, so that none is repeated; written by the transaction that starts the run."""
