"""Credentials and their allowances."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
)
from tidegate.storage.sql.migrations import steps

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    steps.create_table(
        "credential_allowances",
        sa.Column("name", exact_text(100), nullable=False),
        sa.Column("audience", exact_text(200), nullable=False),
        sa.Column("account", exact_text(100), nullable=False),
        sa.Column("pool", exact_text(100), nullable=False),
        sa.Column("user_id", exact_text(80)),
        sa.PrimaryKeyConstraint("name", name="pk_credential_allowances"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("credential_allowances", ["pool"])
    steps.create_index("credential_allowances", ["user_id"])
    steps.create_table(
        "credentials",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("name", exact_text(100), nullable=False),
        sa.Column("kind", exact_text(16), nullable=False),
        sa.Column("allowance", exact_text(100), nullable=False),
        sa.Column("owner", exact_text(200), nullable=False),
        sa.Column("details", Json, nullable=False),
        sa.Column("secret", sa.Text),
        sa.Column("key_id", exact_text(16)),
        sa.Column("fingerprint", exact_text(64)),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("checked_at", UtcDateTime),
        sa.Column("invalid_at", UtcDateTime),
        sa.Column("invalid_reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_credentials"),
        sa.UniqueConstraint("name", name="uq_credentials_name"),
        sa.ForeignKeyConstraint(
            ["allowance"], ["credential_allowances.name"], name="fk_credentials_allowance_credential_allowances"
        ),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("credentials", ["allowance"])
