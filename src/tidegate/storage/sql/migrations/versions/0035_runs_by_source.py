"""Lists of the runs of one source."""

from tidegate.storage.sql.migrations import steps

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    steps.create_index("collection_runs", ["source", "id"])
