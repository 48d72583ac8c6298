"""The outbox: events on their way, and which handler has handled which."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
)
from tidegate.storage.sql.migrations import steps

revision = "0001"
down_revision = None


def upgrade() -> None:
    steps.create_table(
        "outbox_events",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("event_id", exact_text(200), nullable=False),
        sa.Column("kind", exact_text(200), nullable=False),
        sa.Column("event_key", exact_text(200), nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("not_before", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_outbox_events"),
        sa.UniqueConstraint("event_id", name="uq_outbox_events_event_id"),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("outbox_events", ["state", "id"])
    steps.create_index("outbox_events", ["state", "not_before", "event_key"])
    steps.create_table(
        "handled_events",
        sa.Column("handler", exact_text(200), nullable=False),
        sa.Column("event_id", exact_text(200), nullable=False),
        sa.Column("handled_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("handler", "event_id", name="pk_handled_events"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("handled_events", ["handled_at"])
