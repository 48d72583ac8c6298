"""Executions of jobs, firings of schedules, and rests that are for one bucket alone."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    steps.create_table(
        "job_executions",
        sa.Column("job_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("credential", exact_text(100), nullable=False),
        sa.Column("started_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("outcome", exact_text(16)),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("job_id", "fence", name="pk_job_executions"),
        sa.ForeignKeyConstraint(
            ["job_id"], ["page_jobs.id"], name="fk_job_executions_job_id_page_jobs", ondelete="CASCADE"
        ),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "schedule_firings",
        sa.Column("schedule_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("firing_key", exact_text(200), nullable=False),
        sa.Column("fired_at", UtcDateTime, nullable=False),
        sa.Column("outcome", exact_text(16), nullable=False),
        sa.Column("run_id", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("schedule_id", "firing_key", name="pk_schedule_firings"),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["collection_schedules.id"],
            name="fk_schedule_firings_schedule_id_collection_schedules",
            ondelete="CASCADE",
        ),
        options=TABLE_OPTIONS,
    )
    steps.create_index("schedule_firings", ["fired_at"])
    steps.add_column("allowance_notes", sa.Column("rests_bucket", sa.Integer, nullable=False, server_default="0"))
