"""The table `documents` of the SQL document store: one row per collected item."""

from sqlalchemy import BigInteger, Column, Index, String, Table

from tidegate.storage.documents.document import HASH_LENGTH, LONGEST_KIND, LONGEST_SOURCE, LONGEST_TEXT, LONGEST_VERSION
from tidegate.storage.sql.columns import TABLE_OPTIONS, Json, UtcDateTime, exact_text
from tidegate.storage.sql.schema import metadata


def sorted_text(length: int) -> String:
    """A text column that every database sorts by code points, and not by the rules of a language."""
    return exact_text(length).with_variant(String(length, collation="C"), "postgresql")


documents = Table(
    "documents",
    metadata,
    Column("source", exact_text(LONGEST_SOURCE), primary_key=True),
    Column("kind", exact_text(LONGEST_KIND), primary_key=True),
    Column("id", sorted_text(LONGEST_TEXT), primary_key=True),
    Column("owner", exact_text(LONGEST_TEXT), nullable=False),
    Column("resource", exact_text(LONGEST_TEXT), nullable=False),
    Column("version", sorted_text(LONGEST_VERSION)),
    Column("hash", exact_text(HASH_LENGTH), nullable=False),
    Column("sweep", BigInteger, nullable=False),
    Column("fingerprint", BigInteger, nullable=False, server_default="0"),
    Column("body", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("gone_at", UtcDateTime),
    Index(None, "source", "kind", "owner", "id"),
    Index(None, "source", "kind", "resource"),
    # Answers `changes` alone, without the rows, which are long.
    Index(None, "source", "kind", "owner", "gone_at", "changed_at"),
    # Answers `moments` alone, and finds what changed at some moments, for all owners.
    Index(None, "source", "kind", "changed_at", "id", "fingerprint"),
    **TABLE_OPTIONS,
)
"""Collected items. Rows are never removed; `gone_at` is set when the upstream no longer has the item."""
