"""Runs, jobs, schedules and credentials."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Blob,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
    ordered_text,
)

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    steps.create_table(
        "allowance_notes",
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("credential", exact_text(100), nullable=False),
        sa.Column("bucket", exact_text(100), nullable=False),
        sa.Column("pool", exact_text(100), nullable=False),
        sa.Column("most", sa.BigInteger),
        sa.Column("remaining", sa.BigInteger),
        sa.Column("upstream_window", sa.BigInteger),
        sa.Column("resets_at", UtcDateTime),
        sa.Column("blocked_until", UtcDateTime),
        sa.Column("rests_bucket", sa.Integer, nullable=False, server_default="0"),
        sa.Column("learned_concurrency", sa.Integer),
        sa.Column("learned_per_minute", sa.Integer),
        sa.Column("learned_every_ms", sa.Integer),
        sa.Column("learned_from", UtcDateTime),
        sa.Column("learned_until", UtcDateTime),
        sa.PrimaryKeyConstraint("source", "credential", "bucket", name="pk_allowance_notes"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "collection_cursors",
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("user_id", exact_text(200), nullable=False),
        sa.Column("resource_type", exact_text(40), nullable=False),
        sa.Column("resource_key", exact_text(200), nullable=False),
        sa.Column("last_cursor", sa.Text),
        sa.Column("last_timestamp", exact_text(40)),
        sa.Column("last_etag", exact_text(200)),
        sa.Column("last_credential", exact_text(100)),
        sa.Column("last_run_id", sa.BigInteger, nullable=False),
        sa.Column("has_gaps", sa.Integer, nullable=False, server_default="0"),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("source", "user_id", "resource_type", "resource_key", name="pk_collection_cursors"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "collection_places",
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("address", exact_text(500), nullable=False),
        sa.PrimaryKeyConstraint("source", name="pk_collection_places"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "collection_runs",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("user_id", exact_text(200), nullable=False),
        sa.Column("login", exact_text(200), nullable=False),
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
        sa.Column("calls", sa.Integer, nullable=False, server_default="0"),
        sa.Column("unchanged_calls", sa.Integer, nullable=False, server_default="0"),
        sa.Column("documents", sa.Integer, nullable=False, server_default="0"),
        sa.Column("skipped_items", sa.Integer, nullable=False, server_default="0"),
        sa.Column("traceparent", exact_text(55)),
        sa.PrimaryKeyConstraint("id", name="pk_collection_runs"),
        sa.UniqueConstraint("active_key", name="uq_collection_runs_active_key"),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("collection_runs", ["completed_at", "status"])
    steps.create_index("collection_runs", ["created_at", "id"])
    steps.create_index("collection_runs", ["login", "id"])
    steps.create_index("collection_runs", ["source", "status", "id"])
    steps.create_index("collection_runs", ["source", "user_id"])
    steps.create_index("collection_runs", ["status", "id"])
    steps.create_index("collection_runs", ["user_id", "id"])
    steps.create_table(
        "collection_schedules",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("user_id", exact_text(200), nullable=False),
        sa.Column("login", exact_text(200), nullable=False),
        sa.Column("options", Json, nullable=False),
        sa.Column("cron", exact_text(100), nullable=False),
        sa.Column("timezone", exact_text(64), nullable=False),
        sa.Column("next_at", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("last_due_at", UtcDateTime),
        sa.Column("last_run_id", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_collection_schedules"),
        sa.UniqueConstraint(
            "source", "user_id", "cron", "timezone", name="uq_collection_schedules_source_user_id_cron_timezone"
        ),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("collection_schedules", ["next_at"])
    steps.create_table(
        "credential_allowances",
        sa.Column("name", exact_text(100), nullable=False),
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("audience", exact_text(200), nullable=False),
        sa.Column("account", exact_text(100), nullable=False),
        sa.Column("pool", exact_text(100), nullable=False),
        sa.Column("user_id", exact_text(80)),
        sa.PrimaryKeyConstraint("name", name="pk_credential_allowances"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("credential_allowances", ["pool"])
    steps.create_index("credential_allowances", ["user_id"])
    steps.create_table(
        "resource_claims",
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("resource_key", exact_text(200), nullable=False),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("source", "resource_key", name="pk_resource_claims"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("resource_claims", ["run_id"])
    steps.create_table(
        "credentials",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("name", exact_text(100), nullable=False),
        sa.Column("kind", exact_text(16), nullable=False),
        sa.Column("allowance", exact_text(100), nullable=False),
        sa.Column("owner", exact_text(200), nullable=False),
        sa.Column("details", Json, nullable=False),
        sa.Column("secret", sa.Text),
        sa.Column("key_id", exact_text(16)),
        sa.Column("fingerprint", exact_text(64)),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("checked_at", UtcDateTime),
        sa.Column("invalid_at", UtcDateTime),
        sa.Column("invalid_reason", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_credentials"),
        sa.ForeignKeyConstraint(
            ["allowance"], ["credential_allowances.name"], name="fk_credentials_allowance_credential_allowances"
        ),
        sa.UniqueConstraint("source", "name", name="uq_credentials_source_name"),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("credentials", ["allowance"])
    steps.create_table(
        "history_points",
        sa.Column("series", ordered_text(200), nullable=False),
        sa.Column("period", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("unit", exact_text(16), nullable=False),
        sa.PrimaryKeyConstraint("series", "period", name="pk_history_points"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("history_points", ["period"])
    steps.create_table(
        "page_jobs",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("job_type", exact_text(40), nullable=False),
        sa.Column("resource_key", exact_text(200), nullable=False),
        sa.Column("page_key", exact_text(200), nullable=False),
        sa.Column("spec", Json, nullable=False),
        sa.Column("status", exact_text(16), nullable=False),
        sa.Column("end_state", exact_text(16)),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("attempt_count", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("not_before", UtcDateTime),
        sa.Column("next_cursor", sa.Text),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("started_at", UtcDateTime),
        sa.Column("completed_at", UtcDateTime),
        sa.Column("last_error", sa.Text),
        sa.Column("owner", exact_text(200)),
        sa.Column("awaits_run", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_page_jobs"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["collection_runs.id"], name="fk_page_jobs_run_id_collection_runs", ondelete="CASCADE"
        ),
        sa.UniqueConstraint(
            "run_id", "job_type", "resource_key", "page_key", name="uq_page_jobs_run_id_job_type_resource_key_page_key"
        ),
        sa.CheckConstraint(
            "coalesce(end_state, 'open')"
            " = CASE WHEN status IN ('enqueued', 'ready', 'running') THEN 'open' ELSE status END",
            name="ck_page_jobs_end_state",
        ),
        # Half of each page is for the versions that claims make of its rows: they then need no entries in the indexes.
        options={**NUMBERED_TABLE_OPTIONS, "postgresql_with": {"fillfactor": 50}},
    )
    steps.create_index("page_jobs", ["awaits_run", "resource_key"], only_with="awaits_run")
    steps.create_index("page_jobs", ["run_id", "end_state", "id", "job_type"])
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
    steps.create_table(
        "job_executions",
        sa.Column("job_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("credential", exact_text(100), nullable=False),
        sa.Column("started_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("outcome", exact_text(16)),
        sa.Column("reason", sa.Text),
        sa.Column("call_record", Json),
        sa.Column("next_try_at", UtcDateTime),
        sa.PrimaryKeyConstraint("job_id", "fence", name="pk_job_executions"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "parked_answers",
        sa.Column("job_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("credential", exact_text(100), nullable=False),
        sa.Column("answer", Blob, nullable=False),
        sa.Column("parked_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_parked_answers"),
        sa.ForeignKeyConstraint(
            ["job_id"], ["page_jobs.id"], name="fk_parked_answers_job_id_page_jobs", ondelete="CASCADE"
        ),
        options=TABLE_OPTIONS,
    )
