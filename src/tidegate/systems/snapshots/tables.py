"""Tables of snapshots, their history and status, the files of the archive, and the calls of prefetch."""

from sqlalchemy import BigInteger, Column, Date, Float, Index, Integer, SmallInteger, Table, Text

from tidegate.storage.sql.schema import TABLE_OPTIONS, Blob, UtcDateTime, exact_text, metadata
from tidegate.systems.snapshots.model import LONGEST_KEY, LONGEST_UPSTREAM_ID

LONGEST_KIND = 40
HASH_LENGTH = 16

snapshots = Table(
    "snapshots",
    metadata,
    Column("kind", exact_text(LONGEST_KIND), primary_key=True),
    Column("key", exact_text(LONGEST_KEY), primary_key=True),
    Column("upstream_id", exact_text(LONGEST_UPSTREAM_ID)),
    Column("body", Blob),
    Column("hash", exact_text(HASH_LENGTH)),
    Column("size", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("last_updated_at", UtcDateTime),
    Column("last_checked_at", UtcDateTime),
    Column("missing_since", UtcDateTime),
    Column("last_asked_at", UtcDateTime),
    Column("next_due_at", UtcDateTime),
    # The tier when the subject was last planned or read: 0 HOT, 1 WARM, 2 COLD.
    Column("tier", SmallInteger, nullable=False, server_default="2"),
    Column("checks", Integer, nullable=False),
    Column("changes", Integer, nullable=False),
    Column("change_rate", Float),
    # Derived from a hash of the subject: consecutive rows in this order are a random sample.
    Column("sample_place", Integer, nullable=False, server_default="0"),
    Index(None, "next_due_at"),
    Index(None, "tier", "next_due_at"),
    Index(None, "kind", "sample_place"),
    **TABLE_OPTIONS,
)
"""One row for each subject. The version only grows; `versions` decides which result is written."""

snapshot_history = Table(
    "snapshot_history",
    metadata,
    Column("kind", exact_text(LONGEST_KIND), primary_key=True),
    Column("key", exact_text(LONGEST_KEY), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("changed_at", UtcDateTime, nullable=False),
    # The UTC day of `changed_at`: the archive moves whole days, ordered by key.
    Column("day", Date, nullable=False),
    Column("body", Blob, nullable=False),
    Column("hash", exact_text(HASH_LENGTH), nullable=False),
    Column("size", Integer, nullable=False),
    Index(None, "day", "kind", "key"),
    **TABLE_OPTIONS,
)
"""Each changed version of a subject. Old rows move to the archive."""

snapshot_status = Table(
    "snapshot_status",
    metadata,
    Column("kind", exact_text(LONGEST_KIND), primary_key=True),
    Column("key", exact_text(LONGEST_KEY), primary_key=True),
    Column("state", exact_text(16), nullable=False),
    Column("reason", exact_text(40), nullable=False),
    Column("message", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Index(None, "state", "changed_at"),
    **TABLE_OPTIONS,
)
"""Only subjects with a refresh that failed or is being retried. A successful refresh deletes the row."""


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
"""One row for each file of the archive, written by the transaction that deletes its rows from `snapshot_history`."""


prefetch_hours = Table(
    "prefetch_hours",
    metadata,
    Column("day", Date, primary_key=True),
    Column("hour", SmallInteger, primary_key=True, autoincrement=False),
    Column("spent", BigInteger, nullable=False),
    Column("price", Float),
    **TABLE_OPTIONS,
)
"""Calls that prefetch made in each hour, in the configured time zone, and the last price of a call."""
