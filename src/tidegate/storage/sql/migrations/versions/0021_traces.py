"""The trace that each run belongs to."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import exact_text
from tidegate.storage.sql.migrations import steps

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    steps.add_column("collection_runs", sa.Column("traceparent", exact_text(55)))
