"""Whether the last listing of a resource left items out that it could not read."""

import sqlalchemy as sa

from tidegate.database.migrations import steps

revision = "0028"
down_revision = "0026"


def upgrade() -> None:
    steps.add_column("collection_cursors", sa.Column("has_gaps", sa.Integer, nullable=False, server_default="0"))
