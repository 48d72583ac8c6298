"""What is written about jobs and runs; every function works in the caller's transaction.

A job's end, its follow-ups, its cursor and the counters of its run are one transaction. Whether a result counts is
decided there by the fence: whoever claimed last may end the job, and nobody else. Rows are touched in the order of
their ids, so that of two workers one waits for the other, and never both.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, select, tuple_, update

from tidegate.collect.lifecycle import JOB_MOVES, UNFINISHED_JOBS, JobState
from tidegate.collect.source import FIRST_PAGE, Cursor, JobSpec
from tidegate.collect.tables import collection_cursors, collection_runs, page_jobs
from tidegate.database import Transaction
from tidegate.kernel.transitions import sources_of

MAX_ATTEMPTS = 5
_LONGEST_REASON = 2000


class StoredJob(msgspec.Struct, frozen=True):
    """A job with its number, and what the gate has to know."""

    id: int
    run_id: int
    pool: str
    spec: JobSpec
    not_before: datetime | None = None


class Claim(msgspec.Struct, frozen=True):
    """The right to end a job, until somebody else claims it."""

    job: StoredJob
    source: str
    user_id: str
    fence: int
    attempt: int
    max_attempts: int
    cursor: Cursor | None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a claimed job."""

    claim: Claim
    state: JobState
    """SUCCEEDED, FAILED, or READY to be tried again."""
    reason: str = ""
    not_before: datetime | None = None
    is_attempt: bool = True
    """False where the upstream would not be asked: such a try is not counted."""
    follow_ups: Sequence[JobSpec] = ()
    cursor: Cursor | None = None


def claim(tx: Transaction, job_ids: Iterable[int]) -> dict[int, Claim]:
    """Claim those that may run, raising their fences. The others have ended, were canceled, or are unknown."""
    ids = sorted(set(job_ids))
    tx.execute(
        update(page_jobs)
        .where(page_jobs.c.id.in_(ids), page_jobs.c.status.in_(sources_of(JOB_MOVES, JobState.RUNNING)))
        .values(
            status=JobState.RUNNING,
            fence=page_jobs.c.fence + 1,
            attempt_count=page_jobs.c.attempt_count + 1,
            started_at=tx.now,
        )
    )
    run = collection_runs.c
    found = select(page_jobs, run.pool, run.source, run.user_id).join_from(page_jobs, collection_runs)
    rows = tx.execute(found.where(page_jobs.c.id.in_(ids), page_jobs.c.status == JobState.RUNNING)).all()
    cursors = _cursors_of(tx, {_resource(row) for row in rows if row.page_key == FIRST_PAGE})
    return {
        row.id: Claim(
            job=_stored(row),
            source=row.source,
            user_id=row.user_id,
            fence=row.fence,
            attempt=row.attempt_count,
            max_attempts=row.max_attempts,
            cursor=cursors.get(_resource(row)) if row.page_key == FIRST_PAGE else None,
        )
        for row in rows
    }


def still_ours(tx: Transaction, claims: Iterable[Claim]) -> set[int]:
    """The jobs whose claim is the last one; locked until the commit, so that it stays so."""
    fences = {claim.job.id: claim.fence for claim in claims}
    held = (
        select(page_jobs.c.id, page_jobs.c.fence)
        .where(page_jobs.c.id.in_(sorted(fences)), page_jobs.c.status == JobState.RUNNING)
        .order_by(page_jobs.c.id)
        .with_for_update()
    )
    return {row.id for row in tx.execute(held) if row.fence == fences[row.id]}


def write_endings(tx: Transaction, endings: Sequence[Ending]) -> None:
    """Write the rows of jobs that ended, and move the cursors of listings that are complete. Claims must be ours."""
    if not endings:
        return
    ordered = sorted(endings, key=lambda ending: ending.claim.job.id)
    tx.execute(_END, [_ended(ending, tx.now) for ending in ordered])
    _move_cursors(tx, [ending for ending in ordered if ending.cursor is not None])


def add_jobs(tx: Transaction, run_id: int, pool: str, specs: Sequence[JobSpec]) -> list[StoredJob]:
    """Add those that the run does not have yet; return them."""
    wanted = {(spec.kind, spec.resource, spec.page): spec for spec in specs}
    if not wanted:
        return []
    before = _ids_of(tx, run_id, wanted)
    new = {key: spec for key, spec in wanted.items() if key not in before}
    tx.insert_many(page_jobs, [_new_row(run_id, spec, tx.now) for spec in new.values()], skip_existing=True)
    ids = _ids_of(tx, run_id, new) if new else {}
    return [StoredJob(ids[key], run_id, pool, spec) for key, spec in new.items()]


def unfinished(tx: Transaction, run_ids: Sequence[int], after: int, limit: int) -> list[StoredJob]:
    """Jobs that still have to be done, in the order of their ids: what recovery offers."""
    found = (
        select(page_jobs, collection_runs.c.pool)
        .join_from(page_jobs, collection_runs)
        .where(page_jobs.c.run_id.in_(run_ids), page_jobs.c.status.in_(UNFINISHED_JOBS), page_jobs.c.id > after)
        .order_by(page_jobs.c.id)
        .limit(limit)
    )
    return [_stored(row) for row in tx.execute(found)]


def runs_of(tx: Transaction, job_ids: Sequence[int]) -> list[int]:
    """The runs to which these jobs belong."""
    found = select(page_jobs.c.run_id).where(page_jobs.c.id.in_(sorted(job_ids))).distinct()
    return [row.run_id for row in tx.execute(found)]


_END = (
    update(page_jobs)
    .where(page_jobs.c.id == bindparam("job_id"))
    .values(
        status=bindparam("ended_as"),
        completed_at=bindparam("ended_at"),
        not_before=bindparam("again_at"),
        attempt_count=page_jobs.c.attempt_count - bindparam("uncounted"),
        last_error=bindparam("error"),
    )
)


def _ended(ending: Ending, now: datetime) -> dict[str, Any]:
    return {
        "job_id": ending.claim.job.id,
        "ended_as": ending.state,
        "ended_at": None if ending.state is JobState.READY else now,
        "again_at": ending.not_before,
        "uncounted": 0 if ending.is_attempt else 1,
        "error": ending.reason[:_LONGEST_REASON] or None,
    }


def _new_row(run_id: int, spec: JobSpec, now: datetime) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "job_type": spec.kind,
        "resource_key": spec.resource,
        "page_key": spec.page,
        "spec": msgspec.to_builtins(spec),
        "status": JobState.ENQUEUED,
        "fence": 0,
        "attempt_count": 0,
        "max_attempts": MAX_ATTEMPTS,
        "created_at": now,
    }


def _stored(row: Any) -> StoredJob:
    return StoredJob(row.id, row.run_id, row.pool, msgspec.convert(row.spec, JobSpec), row.not_before)


def _ids_of(tx: Transaction, run_id: int, keys: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], int]:
    job = page_jobs.c
    found = select(job.id, job.job_type, job.resource_key, job.page_key).where(
        job.run_id == run_id, tuple_(job.job_type, job.resource_key, job.page_key).in_(list(keys))
    )
    return {(row.job_type, row.resource_key, row.page_key): row.id for row in tx.execute(found)}


def _resource(row: Any) -> tuple[str, str, str]:
    return row.user_id, row.job_type, row.resource_key


def _cursors_of(tx: Transaction, resources: set[tuple[str, str, str]]) -> dict[tuple[str, str, str], Cursor]:
    if not resources:
        return {}
    at = collection_cursors.c
    found = select(collection_cursors).where(
        tuple_(at.user_id, at.resource_type, at.resource_key).in_(sorted(resources))
    )
    return {
        (row.user_id, row.resource_type, row.resource_key): Cursor(
            cursor=row.last_cursor, timestamp=row.last_timestamp, etag=row.last_etag, credential=row.last_credential
        )
        for row in tx.execute(found)
    }


def _move_cursors(tx: Transaction, endings: Sequence[Ending]) -> None:
    at = collection_cursors.c
    for ending in endings:
        cursor, job = ending.cursor, ending.claim.job
        assert cursor is not None
        key = {
            "user_id": ending.claim.user_id,
            "resource_type": job.spec.kind,
            "resource_key": job.spec.resource,
        }
        values = {
            "last_cursor": cursor.cursor,
            "last_timestamp": cursor.timestamp,
            "last_etag": cursor.etag,
            "last_credential": cursor.credential,
            "last_run_id": job.run_id,
            "updated_at": tx.now,
        }
        same = (at.user_id == key["user_id"], at.resource_type == key["resource_type"])
        moved = tx.execute(
            update(collection_cursors).where(*same, at.resource_key == key["resource_key"]).values(values)
        )
        if moved.rowcount == 0:
            tx.insert_many(collection_cursors, [key | values], skip_existing=True)
