"""Tables of boards, counted events and scores, of which the Valkey server has a copy."""

from sqlalchemy import BigInteger, Column, Index, Table

from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata
from tidegate.systems.ranking.settings import LONGEST_BOARD

LONGEST_ID = 200
ranking_boards = Table(
    "ranking_boards",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    # Calendar by which the scores of the board were computed; after a change of the setting they are recomputed.
    Column("timezone", exact_text(64), nullable=False),
    **TABLE_OPTIONS,
)
"""One row per board, which every counting transaction locks: transactions of one board run one after the other."""
ranking_events = Table(
    "ranking_events",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    Column("event_id", exact_text(LONGEST_ID), primary_key=True),
    Column("member", exact_text(LONGEST_ID), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("happened_at", UtcDateTime, nullable=False),
    Index(None, "board", "happened_at"),
    **TABLE_OPTIONS,
)
"""Counted events, each once. A row is deleted when every window that it counted in is gone."""
ranking_scores = Table(
    "ranking_scores",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    Column("period", exact_text(8), primary_key=True),
    Column("window_name", exact_text(10), primary_key=True),
    Column("member", exact_text(LONGEST_ID), primary_key=True),
    Column("score", BigInteger, nullable=False),
    # Time of the latest event of the score, in whatever order the events came.
    Column("reached_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Scores of members per window."""
