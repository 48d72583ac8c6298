"""The outbox and the documents."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
)

revision = "0001"
down_revision = None


def _ordered(length: int) -> sa.String:
    # PostgreSQL compares it by bytes, as the other servers do.
    return exact_text(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    steps.create_table(
        "documents",
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("kind", exact_text(64), nullable=False),
        sa.Column("id", _ordered(200), nullable=False),
        sa.Column("owner", exact_text(200), nullable=False),
        sa.Column("resource", exact_text(200), nullable=False),
        sa.Column("version", _ordered(64)),
        sa.Column("hash", exact_text(32), nullable=False),
        sa.Column("sweep", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("body", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("gone_at", UtcDateTime),
        sa.PrimaryKeyConstraint("source", "kind", "id", name="pk_documents"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("documents", ["source", "kind", "changed_at", "id", "fingerprint"])
    steps.create_index("documents", ["source", "kind", "owner", "gone_at", "changed_at"])
    steps.create_index("documents", ["source", "kind", "owner", "id"])
    steps.create_index("documents", ["source", "kind", "resource"])
    steps.create_table(
        "handled_events",
        sa.Column("handler", exact_text(200), nullable=False),
        sa.Column("event_id", exact_text(200), nullable=False),
        sa.Column("handled_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("handler", "event_id", name="pk_handled_events"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("handled_events", ["handled_at"])
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
