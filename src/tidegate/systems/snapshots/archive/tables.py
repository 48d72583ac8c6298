"""Which files of the archive there are."""

from sqlalchemy import BigInteger, Column, Date, Index, Integer, Table

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.schema import metadata
from tidegate.systems.snapshots.subject import LONGEST_KEY
from tidegate.systems.snapshots.tables import LONGEST_KIND

snapshot_archives = Table(
    "snapshot_archives",
    metadata,
    Column("name", exact_text(255), primary_key=True),
    Column("kind", exact_text(LONGEST_KIND), nullable=False),
    Column("day", Date, nullable=False),
    Column("first_key", exact_text(LONGEST_KEY), nullable=False),
    Column("last_key", exact_text(LONGEST_KEY), nullable=False),
    Column("entries", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("archived_at", UtcDateTime, nullable=False),
    Index(None, "kind", "day"),
    **TABLE_OPTIONS,
)
"""One row for each file, written in the step that removes what it holds from `snapshot_history`."""
