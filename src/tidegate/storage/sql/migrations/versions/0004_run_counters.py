"""What the calls of a run brought."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for name in ("calls", "unchanged_calls", "documents"):
        steps.add_column("collection_runs", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    steps.create_index("collection_runs", ["github_login", "id"])
