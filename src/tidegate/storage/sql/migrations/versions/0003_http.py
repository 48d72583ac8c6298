"""Sessions."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    steps.create_table(
        "http_sessions",
        sa.Column("id", exact_text(64), nullable=False),
        sa.Column("key_id", exact_text(64), nullable=False),
        sa.Column("role", exact_text(16), nullable=False),
        sa.Column("address", exact_text(64), nullable=False),
        sa.Column("opened_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_http_sessions"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("http_sessions", ["expires_at"])
    steps.create_table(
        "revoked_sessions",
        sa.Column("subject", exact_text(64), nullable=False),
        sa.Column("opened_until", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_revoked_sessions"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("revoked_sessions", ["expires_at"])
