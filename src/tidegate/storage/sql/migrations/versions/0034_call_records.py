"""The request of each execution of a job, and when the job is tried again."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import Json, UtcDateTime
from tidegate.storage.sql.migrations import steps

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    steps.add_column("job_executions", sa.Column("call_record", Json))
    steps.add_column("job_executions", sa.Column("next_try_at", UtcDateTime))
