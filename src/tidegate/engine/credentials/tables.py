"""Tables of credentials and of the allowances that they spend."""

from sqlalchemy import Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
    metadata,
)

credential_allowances = Table(
    "credential_allowances",
    metadata,
    # Its name in the gate; reveals nothing about a secret.
    Column("name", exact_text(100), primary_key=True),
    Column("source", exact_text(40), nullable=False),
    # The only place where its secrets may be sent.
    Column("audience", exact_text(200), nullable=False),
    Column("account", exact_text(100), nullable=False),
    # One pool only, because an allowance that served two pools would be spent twice.
    Column("pool", exact_text(100), nullable=False),
    Column("user_id", exact_text(80)),
    Index(None, "pool"),
    Index(None, "user_id"),
    **TABLE_OPTIONS,
)
"""What the upstream limits: an account or an installation of an app. A row exists while it has a credential."""

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
    # Encrypted; NULL for a token that processes hold in memory.
    Column("secret", Text),
    Column("key_id", exact_text(16)),
    # A keyed hash that identifies a secret that is not stored.
    Column("fingerprint", exact_text(64)),
    # Raised with every new secret, so that the rejection of an old secret does not affect the new one.
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
"""Secrets with their owners. Several can spend one allowance, such as the tokens of one account."""
