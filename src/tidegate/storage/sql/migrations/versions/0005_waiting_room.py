"""Waiting rooms."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    steps.create_table(
        "room_tokens",
        sa.Column("room", exact_text(64), nullable=False),
        sa.Column("admission", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("user_id", exact_text(128), nullable=False),
        sa.Column("active_user", exact_text(128)),
        sa.Column("place", sa.BigInteger),
        sa.Column("is_guest", sa.Boolean, nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("admitted_at", UtcDateTime, nullable=False),
        sa.Column("expires_at", UtcDateTime, nullable=False),
        sa.Column("ends_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime),
        sa.PrimaryKeyConstraint("room", "admission", name="pk_room_tokens"),
        sa.UniqueConstraint("room", "active_user", name="uq_room_tokens_room_active_user"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("room_tokens", ["ended_at"])
    steps.create_index("room_tokens", ["room", "place"])
    steps.create_table(
        "waiting_rooms",
        sa.Column("name", exact_text(64), nullable=False),
        sa.Column("line", exact_text(36), nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("opens_at", UtcDateTime),
        sa.Column("capacity", sa.Integer, nullable=False),
        sa.Column("admit_per_second", sa.Double),
        sa.Column("session_ms", sa.Integer, nullable=False),
        sa.Column("longest_session_ms", sa.Integer, nullable=False),
        sa.Column("abandon_ms", sa.Integer, nullable=False),
        sa.Column("log_length", sa.Integer, nullable=False),
        sa.Column("seed", exact_text(64), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("reserved", sa.BigInteger, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("title", exact_text(200)),
        sa.Column("entrance", exact_text(500)),
        sa.Column("anonymous", sa.Boolean),
        sa.Column("puzzle_bits", sa.Integer),
        sa.PrimaryKeyConstraint("name", name="pk_waiting_rooms"),
        options=TABLE_OPTIONS,
    )
