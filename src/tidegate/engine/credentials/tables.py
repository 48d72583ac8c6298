"""Whose secrets are stored, and which allowance each of them spends."""

from sqlalchemy import Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from tidegate.storage.sql.columns import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
)
from tidegate.storage.sql.schema import metadata

credential_allowances = Table(
    "credential_allowances",
    metadata,
    # What the gate knows it by; it tells nothing of a secret.
    Column("name", exact_text(100), primary_key=True),
    Column("source", exact_text(40), nullable=False),
    # Where its secrets may be sent, and nowhere else.
    Column("audience", exact_text(200), nullable=False),
    Column("account", exact_text(100), nullable=False),
    # One pool only: an allowance that served two would be spent twice.
    Column("pool", exact_text(100), nullable=False),
    Column("user_id", exact_text(80)),
    Index(None, "pool"),
    Index(None, "user_id"),
    **TABLE_OPTIONS,
)
"""What the upstream rations: an account, or an installation of an app. It is there as long as it has a credential."""

credentials = Table(
    "credentials",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("source", exact_text(40), nullable=False),
    Column("name", exact_text(100), nullable=False),
    Column("kind", exact_text(16), nullable=False),
    Column("allowance", exact_text(100), ForeignKey("credential_allowances.name"), nullable=False, index=True),
    Column("owner", exact_text(200), nullable=False),
    Column("details", Json, nullable=False),
    # Encrypted; NULL for the one that only processes have, in their memory.
    Column("secret", Text),
    Column("key_id", exact_text(16)),
    # A keyed hash, by which a secret that is not stored is known again.
    Column("fingerprint", exact_text(64)),
    # Raised with every new secret: whoever refuses an old one does not harm the new one.
    Column("version", Integer, nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("checked_at", UtcDateTime),
    Column("invalid_at", UtcDateTime),
    Column("invalid_reason", Text),
    UniqueConstraint("source", "name"),
    **NUMBERED_TABLE_OPTIONS,
)
"""Secrets with their owners. Several may spend one allowance: the tokens of one account."""
