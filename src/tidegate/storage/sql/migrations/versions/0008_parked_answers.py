"""Answers that could not be written yet."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, Blob, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    steps.create_table(
        "parked_answers",
        sa.Column("job_id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("credential", exact_text(100), nullable=False),
        sa.Column("answer", Blob, nullable=False),
        sa.Column("parked_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_parked_answers"),
        sa.ForeignKeyConstraint(
            ["job_id"], ["page_jobs.id"], name="fk_parked_answers_job_id_page_jobs", ondelete="CASCADE"
        ),
        options=TABLE_OPTIONS,
    )
