"""Runs, their jobs, and where the next run goes on."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
)
from tidegate.storage.sql.migrations import steps

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    steps.create_table(
        "collection_runs",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("user_id", exact_text(200), nullable=False),
        sa.Column("github_login", exact_text(200), nullable=False),
        sa.Column("pool", exact_text(100), nullable=False),
        sa.Column("options", Json, nullable=False),
        sa.Column("status", exact_text(16), nullable=False),
        sa.Column("triggered_by", exact_text(16), nullable=False),
        sa.Column("active_key", exact_text(250)),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("started_at", UtcDateTime),
        sa.Column("completed_at", UtcDateTime),
        sa.Column("total_jobs", sa.Integer, nullable=False),
        sa.Column("succeeded_jobs", sa.Integer, nullable=False),
        sa.Column("failed_jobs", sa.Integer, nullable=False),
        sa.Column("canceled_jobs", sa.Integer, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_collection_runs"),
        sa.UniqueConstraint("active_key", name="uq_collection_runs_active_key"),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("collection_runs", ["status", "id"])
    steps.create_index("collection_runs", ["user_id", "id"])
    steps.create_table(
        "page_jobs",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("job_type", exact_text(40), nullable=False),
        sa.Column("resource_key", exact_text(200), nullable=False),
        sa.Column("page_key", exact_text(200), nullable=False),
        sa.Column("spec", Json, nullable=False),
        sa.Column("status", exact_text(16), nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("attempt_count", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("not_before", UtcDateTime),
        sa.Column("next_cursor", sa.Text),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("started_at", UtcDateTime),
        sa.Column("completed_at", UtcDateTime),
        sa.Column("last_error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_page_jobs"),
        sa.UniqueConstraint(
            "run_id",
            "job_type",
            "resource_key",
            "page_key",
            name="uq_page_jobs_run_id_job_type_resource_key_page_key",
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["collection_runs.id"], name="fk_page_jobs_run_id_collection_runs", ondelete="CASCADE"
        ),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("page_jobs", ["run_id", "status", "id"])
    steps.create_table(
        "collection_cursors",
        sa.Column("user_id", exact_text(200), nullable=False),
        sa.Column("resource_type", exact_text(40), nullable=False),
        sa.Column("resource_key", exact_text(200), nullable=False),
        sa.Column("last_cursor", sa.Text),
        sa.Column("last_timestamp", exact_text(40)),
        sa.Column("last_etag", exact_text(200)),
        sa.Column("last_credential", exact_text(100)),
        sa.Column("last_run_id", sa.BigInteger, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "resource_type", "resource_key", name="pk_collection_cursors"),
        options=TABLE_OPTIONS,
    )
