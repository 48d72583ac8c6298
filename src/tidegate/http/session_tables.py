"""Sessions of browsers: those that were opened, and those that were revoked before their time."""

from sqlalchemy import Column, Index, Table

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.schema import metadata

LONGEST_SUBJECT = 64

http_sessions = Table(
    "http_sessions",
    metadata,
    Column("id", exact_text(LONGEST_SUBJECT), primary_key=True),
    # The key that opened it; both ids mean nothing outside.
    Column("key_id", exact_text(LONGEST_SUBJECT), nullable=False),
    Column("role", exact_text(16), nullable=False),
    # Where the login came from.
    Column("address", exact_text(LONGEST_SUBJECT), nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    # From then on the row is removed by a later login.
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)
"""One row for each browser that logged in. It is a list and no proof: the signed cookie is the session."""

revoked_sessions = Table(
    "revoked_sessions",
    metadata,
    # The id of one session, or the id of a key: then all sessions that it opened; or `*`: all sessions.
    Column("subject", exact_text(LONGEST_SUBJECT), primary_key=True),
    # Sessions opened later are not concerned.
    Column("opened_until", UtcDateTime, nullable=False),
    # By then every session concerned has ended by itself, and the row is removed.
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)
"""One row for each revoked session, or for each key whose sessions were revoked together."""
