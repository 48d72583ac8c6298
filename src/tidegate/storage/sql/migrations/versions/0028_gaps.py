"""Whether the last listing of a resource left items out that it could not read; and admissions by their end."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps

revision = "0028"
down_revision = "0026"


def upgrade() -> None:
    steps.add_column("collection_cursors", sa.Column("has_gaps", sa.Integer, nullable=False, server_default="0"))
    steps.create_index("room_tokens", ["ended_at"])
