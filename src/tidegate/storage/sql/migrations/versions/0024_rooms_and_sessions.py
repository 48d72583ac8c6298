"""When admissions ended, what a browser has to solve before it joins a line, and which sessions were revoked."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0024"
down_revision = "0022"


def upgrade() -> None:
    steps.add_column("room_tokens", sa.Column("ended_at", UtcDateTime))
    steps.add_column("waiting_rooms", sa.Column("puzzle_bits", sa.Integer))
    steps.create_table(
        "revoked_sessions",
        sa.Column("subject", exact_text(64), primary_key=True),
        sa.Column("opened_until", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        options=TABLE_OPTIONS,
    )
    steps.create_index("revoked_sessions", ["expires_at"])
