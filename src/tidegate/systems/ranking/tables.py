"""What was counted, and what it comes to: the truth, of which the server has a copy."""

from sqlalchemy import BigInteger, Column, Index, Table

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.schema import metadata
from tidegate.systems.ranking.settings import LONGEST_BOARD

LONGEST_ID = 200

ranking_boards = Table(
    "ranking_boards",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    # By whose calendar the scores of this board are: where the settings say another one, they are counted anew.
    Column("timezone", exact_text(64), nullable=False),
    **TABLE_OPTIONS,
)
"""A row for each board, which whoever counts holds until the commit: so two can never count in between each other."""

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
"""What was counted, each once. A row goes when every window it was counted in is gone."""

ranking_scores = Table(
    "ranking_scores",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    Column("period", exact_text(8), primary_key=True),
    Column("window_name", exact_text(10), primary_key=True),
    Column("member", exact_text(LONGEST_ID), primary_key=True),
    Column("score", BigInteger, nullable=False),
    # The latest of the events that make up the score: when it was reached, in whatever order they came.
    Column("reached_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""What the events of each window come to, member by member."""
