"""All tables. What is declared here and what the migrations make is compared by a test, on every server."""

from sqlalchemy import Column, Index, Integer, MetaData, Table, Text

from tidegate.storage.sql.columns import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

outbox_events = Table(
    "outbox_events",
    metadata,
    # Given by the server: two transactions that a lock put in order get their numbers in that order, whatever the
    # clocks of their processes say.
    Column("id", ascending_key(), primary_key=True),
    Column("event_id", exact_text(200), nullable=False, unique=True),
    Column("kind", exact_text(200), nullable=False),
    Column("event_key", exact_text(200), nullable=False),
    Column("payload", Json, nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    # NULL is "at once": a new event must not wait because its writer's clock is ahead of the relay's.
    Column("not_before", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_error", Text),
    Index(None, "state", "id"),
    Index(None, "state", "not_before", "event_key"),
    **NUMBERED_TABLE_OPTIONS,
)
"""Events on their way. A row is removed when its event was handled, so the table is as long as the work ahead."""

handled_events = Table(
    "handled_events",
    metadata,
    Column("handler", exact_text(200), primary_key=True),
    Column("event_id", exact_text(200), primary_key=True),
    Column("handled_at", UtcDateTime, nullable=False, index=True),
    **TABLE_OPTIONS,
)
"""Which handler has already handled which event."""
