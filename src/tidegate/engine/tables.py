"""Tables of runs, jobs, cursors, resource claims and allowance records."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    and_,
    or_,
)

from tidegate.engine.lifecycle import UNFINISHED_JOBS, JobState
from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Blob,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
    metadata,
    ordered_text,
)

collection_runs = Table(
    "collection_runs",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("source", exact_text(40), nullable=False),
    Column("user_id", exact_text(200), nullable=False),
    # Display name of the subject; `user_id` is its id within the source.
    Column("login", exact_text(200), nullable=False),
    Column("pool", exact_text(100), nullable=False),
    Column("options", Json, nullable=False),
    Column("status", exact_text(16), nullable=False),
    Column("triggered_by", exact_text(16), nullable=False),
    # Set while the run is active, and then NULL: at most one active run of a user, on servers without partial indexes.
    Column("active_key", exact_text(250), unique=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("completed_at", UtcDateTime),
    Column("total_jobs", Integer, nullable=False),
    Column("succeeded_jobs", Integer, nullable=False),
    Column("failed_jobs", Integer, nullable=False),
    Column("canceled_jobs", Integer, nullable=False),
    Column("last_error", Text),
    Column("calls", Integer, nullable=False, server_default="0"),
    Column("unchanged_calls", Integer, nullable=False, server_default="0"),
    Column("documents", Integer, nullable=False, server_default="0"),
    # List items that could not be read.
    Column("skipped_items", Integer, nullable=False, server_default="0"),
    # W3C trace context of what started the run; NULL if it is not traced.
    Column("traceparent", exact_text(55)),
    Index(None, "status", "id"),
    Index(None, "user_id", "id"),
    Index(None, "login", "id"),
    Index(None, "source", "status", "id"),
    Index(None, "source", "user_id"),
    Index(None, "completed_at", "status"),
    Index(None, "created_at", "id"),
    **NUMBERED_TABLE_OPTIONS,
)
"""One collection for one subject. The counters are written by the transactions that end jobs, and so always agree."""

page_jobs = Table(
    "page_jobs",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("run_id", BigInteger, ForeignKey("collection_runs.id", ondelete="CASCADE"), nullable=False),
    Column("job_type", exact_text(40), nullable=False),
    Column("resource_key", exact_text(200), nullable=False),
    # Never NULL: NULLs are distinct in a unique index, so a first page could be inserted twice.
    Column("page_key", exact_text(200), nullable=False),
    Column("spec", Json, nullable=False),
    Column("status", exact_text(16), nullable=False),
    # `status` of an ended job; NULL while it is unfinished. The index has this column, since no claim changes it.
    Column("end_state", exact_text(16)),
    # Raised at every claim; a result that carries an older one changes nothing.
    Column("fence", Integer, nullable=False),
    Column("attempt_count", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("not_before", UtcDateTime),
    Column("next_cursor", Text),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("completed_at", UtcDateTime),
    Column("last_error", Text),
    # Owner of the documents and of the cursor; NULL: the subject of the run.
    Column("owner", exact_text(200)),
    # The run that is collecting this resource; until it has ended its jobs, this job is not enqueued.
    Column("awaits_run", BigInteger),
    UniqueConstraint("run_id", "job_type", "resource_key", "page_key"),
    # Few jobs ever wait: the migration leaves out all others, except on MySQL. To say so here would import a dialect.
    Index(None, "awaits_run", "resource_key"),
    # The kind is there to be read, and not to be searched by: how many jobs of each kind have ended, this alone tells.
    Index(None, "run_id", "end_state", "id", "job_type"),
    CheckConstraint(
        "coalesce(end_state, 'open')"
        " = CASE WHEN status IN ('enqueued', 'ready', 'running') THEN 'open' ELSE status END",
        name="end_state",
    ),
    **NUMBERED_TABLE_OPTIONS,
)
"""One upstream call."""


def in_state(*states: JobState) -> ColumnElement[bool]:
    """Return the condition for jobs in any of these states, in terms of the index of the jobs of a run."""
    job, unfinished = page_jobs.c, set(states).intersection(UNFINISHED_JOBS)
    ended = job.end_state.in_(sorted(set(states) - unfinished))
    if not unfinished:
        return ended
    is_open = job.end_state.is_(None)
    if len(unfinished) < len(UNFINISHED_JOBS):
        is_open = and_(is_open, job.status.in_(sorted(unfinished)))
    return is_open if len(unfinished) == len(set(states)) else or_(is_open, ended)


def state_values(state: JobState) -> dict[str, str | None]:
    """Return the values of the columns that hold the state of a job."""
    return {"status": state, "end_state": None if state in UNFINISHED_JOBS else state}


job_executions = Table(
    "job_executions",
    metadata,
    # No foreign key: its check costs as much as the row itself. The retention rule deletes executions with their jobs.
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    # Of the claim that began it.
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("credential", exact_text(100), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    # NULL while it runs, or after its worker died, until the next claim.
    Column("ended_at", UtcDateTime),
    Column("outcome", exact_text(16)),
    Column("reason", Text),
    # The request as a `CallRecord`; NULL where none was sent. One column, since it is shown and never searched by.
    Column("call_record", Json),
    # When the job may be tried again; NULL where it is over, or may be tried at once.
    Column("next_try_at", UtcDateTime),
    **TABLE_OPTIONS,
)
"""The newest executions of each job, with the request that each sent and its outcome."""

collection_cursors = Table(
    "collection_cursors",
    metadata,
    Column("source", exact_text(40), primary_key=True),
    Column("user_id", exact_text(200), primary_key=True),
    Column("resource_type", exact_text(40), primary_key=True),
    Column("resource_key", exact_text(200), primary_key=True),
    Column("last_cursor", Text),
    Column("last_timestamp", exact_text(40)),
    Column("last_etag", exact_text(200)),
    Column("last_credential", exact_text(100)),
    Column("last_run_id", BigInteger, nullable=False),
    # 1 where the last run that read the list to its end could not read all of its items; see `cursors.py`.
    Column("has_gaps", Integer, nullable=False, server_default="0"),
    Column("updated_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Where the next run of a user continues; changed only by the transaction that ends a listing."""

resource_claims = Table(
    "resource_claims",
    metadata,
    Column("source", exact_text(40), primary_key=True),
    Column("resource_key", exact_text(200), primary_key=True),
    # No foreign key: a claim passes to a run that another transaction may have locked.
    Column("run_id", BigInteger, nullable=False, index=True),
    **TABLE_OPTIONS,
)
"""Which run collects a resource that several runs can reach; see `claims.py`."""

parked_answers = Table(
    "parked_answers",
    metadata,
    Column("job_id", BigInteger, ForeignKey("page_jobs.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    # The credential that made the call: the ETags of the answer are valid for it only.
    Column("credential", exact_text(100), nullable=False),
    Column("answer", Blob, nullable=False),
    Column("parked_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Answers with documents that could not be written, so that the call is not repeated; kept for an hour at most."""

allowance_notes = Table(
    "allowance_notes",
    metadata,
    Column("source", exact_text(40), primary_key=True),
    Column("credential", exact_text(100), primary_key=True),
    Column("bucket", exact_text(100), primary_key=True),
    Column("pool", exact_text(100), nullable=False),
    # Of how many calls so many are left, in which of the upstream's windows.
    Column("most", BigInteger),
    Column("remaining", BigInteger),
    Column("upstream_window", BigInteger),
    Column("resets_at", UtcDateTime),
    Column("blocked_until", UtcDateTime),
    # 1 where that rest is for this bucket alone.
    Column("rests_bucket", Integer, nullable=False, server_default="0"),
    # What refusals taught: calls at once and in a minute, from when on more is allowed, by steps of which length, and
    # until when.
    Column("learned_concurrency", Integer),
    Column("learned_per_minute", Integer),
    Column("learned_every_ms", Integer),
    Column("learned_from", UtcDateTime),
    Column("learned_until", UtcDateTime),
    **TABLE_OPTIONS,
)
"""Credentials that are blocked, were rejected lately, or have little left in their window. Only used to restore the
gate after its server lost its data."""

history_points = Table(
    "history_points",
    metadata,
    Column("series", ordered_text(200), primary_key=True),
    # Start of the period, in seconds since 1970: a number, so that every server can group periods.
    Column("period", BigInteger, primary_key=True, autoincrement=False),
    Column("value", Double, nullable=False),
    Column("unit", exact_text(16), nullable=False),
    Index(None, "period"),
    **TABLE_OPTIONS,
)
"""Values for the charts of the dashboard, one for each series and period; see `reports/history_points.py`."""

collection_places = Table(
    "collection_places",
    metadata,
    Column("source", exact_text(40), primary_key=True),
    Column("address", exact_text(500), nullable=False),
    **TABLE_OPTIONS,
)
"""The address from which the data of each source comes."""
