"""What the upstream said of scarce allowances, so that it outlives the memory of the gate."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    steps.create_table(
        "allowance_notes",
        sa.Column("credential", exact_text(100), nullable=False),
        sa.Column("bucket", exact_text(100), nullable=False),
        sa.Column("pool", exact_text(100), nullable=False),
        sa.Column("most", sa.BigInteger),
        sa.Column("remaining", sa.BigInteger),
        sa.Column("upstream_window", sa.BigInteger),
        sa.Column("resets_at", UtcDateTime),
        sa.Column("blocked_until", UtcDateTime),
        sa.PrimaryKeyConstraint("credential", "bucket", name="pk_allowance_notes"),
        options=TABLE_OPTIONS,
    )
