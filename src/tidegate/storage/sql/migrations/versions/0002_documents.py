"""Documents: collected items."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, Json, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    steps.create_table(
        "documents",
        sa.Column("kind", exact_text(64), nullable=False),
        sa.Column("id", _sorted_text(200), nullable=False),
        sa.Column("owner", exact_text(200), nullable=False),
        sa.Column("resource", exact_text(200), nullable=False),
        sa.Column("version", _sorted_text(64)),
        sa.Column("hash", exact_text(32), nullable=False),
        sa.Column("sweep", sa.BigInteger, nullable=False),
        sa.Column("body", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("gone_at", UtcDateTime),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_documents"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("documents", ["kind", "owner", "id"])
    steps.create_index("documents", ["kind", "resource"])


def _sorted_text(length: int) -> sa.String:
    return exact_text(length).with_variant(sa.String(length, collation="C"), "postgresql")
