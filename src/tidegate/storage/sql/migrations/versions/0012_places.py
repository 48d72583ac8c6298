"""From which address the data of each source comes."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    steps.create_table(
        "collection_places",
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("address", exact_text(500), nullable=False),
        sa.PrimaryKeyConstraint("source", name="pk_collection_places"),
        options=TABLE_OPTIONS,
    )
