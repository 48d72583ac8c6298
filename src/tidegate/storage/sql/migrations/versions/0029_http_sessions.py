"""Which browsers are logged in, so that their sessions can be listed and revoked."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    steps.create_table(
        "http_sessions",
        sa.Column("id", exact_text(64), primary_key=True),
        sa.Column("key_id", exact_text(64), nullable=False),
        sa.Column("role", exact_text(16), nullable=False),
        sa.Column("address", exact_text(64), nullable=False),
        sa.Column("opened_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        options=TABLE_OPTIONS,
    )
    steps.create_index("http_sessions", ["expires_at"])
