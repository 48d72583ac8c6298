"""How many items of its lists a run had to leave out."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    steps.add_column("collection_runs", sa.Column("skipped_items", sa.Integer, nullable=False, server_default="0"))
