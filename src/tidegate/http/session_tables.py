"""Sessions of browsers that were revoked before their time."""

from sqlalchemy import Column, Index, Table

from tidegate.database.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.database.schema import metadata

LONGEST_SUBJECT = 64

revoked_sessions = Table(
    "revoked_sessions",
    metadata,
    # The id of one session, or the id of a key: then all sessions that it opened.
    Column("subject", exact_text(LONGEST_SUBJECT), primary_key=True),
    # Sessions opened later are not concerned.
    Column("opened_until", UtcDateTime, nullable=False),
    # By then every session concerned has ended by itself, and the row is removed.
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)
"""One row for each revoked session, or for each key whose sessions were revoked together."""
