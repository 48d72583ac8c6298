"""Rankings."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    steps.create_table(
        "ranking_boards",
        sa.Column("board", exact_text(40), nullable=False),
        sa.Column("timezone", exact_text(64), nullable=False),
        sa.PrimaryKeyConstraint("board", name="pk_ranking_boards"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "ranking_events",
        sa.Column("board", exact_text(40), nullable=False),
        sa.Column("event_id", exact_text(200), nullable=False),
        sa.Column("member", exact_text(200), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("happened_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("board", "event_id", name="pk_ranking_events"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("ranking_events", ["board", "happened_at"])
    steps.create_table(
        "ranking_scores",
        sa.Column("board", exact_text(40), nullable=False),
        sa.Column("period", exact_text(8), nullable=False),
        sa.Column("window_name", exact_text(10), nullable=False),
        sa.Column("member", exact_text(200), nullable=False),
        sa.Column("score", sa.BigInteger, nullable=False),
        sa.Column("reached_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("board", "period", "window_name", "member", name="pk_ranking_scores"),
        options=TABLE_OPTIONS,
    )
