"""Tables of browser sessions and of revocations."""

from sqlalchemy import Column, Index, Table

from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata

LONGEST_SUBJECT = 64

http_sessions = Table(
    "http_sessions",
    metadata,
    Column("id", exact_text(LONGEST_SUBJECT), primary_key=True),
    # Id of the key of the login; neither id reveals a secret.
    Column("key_id", exact_text(LONGEST_SUBJECT), nullable=False),
    Column("role", exact_text(16), nullable=False),
    # Client address of the login.
    Column("address", exact_text(LONGEST_SUBJECT), nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    # After this time a later login removes the row.
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)
"""One row per login of a browser. For listing only: the signed cookie is the session."""

revoked_sessions = Table(
    "revoked_sessions",
    metadata,
    # The id of a session; the id of a key, for all its sessions; or `*`, for all sessions.
    Column("subject", exact_text(LONGEST_SUBJECT), primary_key=True),
    # Sessions opened later are not revoked.
    Column("opened_until", UtcDateTime, nullable=False),
    # By then all these sessions have expired, and the row is removed.
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)
"""One row per revocation: of one session, of all sessions of a key, or of all sessions."""
