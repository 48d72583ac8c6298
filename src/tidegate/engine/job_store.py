"""Claims and endings of jobs; every function works in the caller's transaction.

A job's end, its follow-ups, its cursor and the counters of its run are one transaction. Whether a result counts is
decided there by the fence: whoever claimed last may end the job, and nobody else. Rows are touched in the order of
their ids, so that of two workers one waits for the other, and never both.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, func, select, update

from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.core.transitions import sources_of
from tidegate.engine import parked_answer_store
from tidegate.engine.cursors import Move, move_cursors
from tidegate.engine.lifecycle import JOB_MOVES, UNFINISHED_JOBS, JobState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.source import FIRST_PAGE, Cursor, JobSpec
from tidegate.engine.tables import collection_cursors, collection_runs, page_jobs
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement

LONGEST_REASON = 2000
"""Characters that are kept of why a job, or its run, failed."""


class StoredJob(msgspec.Struct, frozen=True, gc=False):
    """A job with its number, and what the gate has to know."""

    id: int
    run_id: int
    pool: str
    spec: JobSpec
    not_before: datetime | None = None
    holder: str | None = None
    """The credential whose ETag the last run left for this resource, where the job begins a list."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The right to end a job, until somebody else claims it."""

    job: StoredJob
    source: str
    user_id: str
    fence: int
    attempt: int
    max_attempts: int
    cursor: Cursor | None
    parked: ParkedAnswer | None = None
    """The answer to this job, if somebody got it already and could not write what it brought."""
    traceparent: str | None = None
    """The trace of its run, where that is traced."""


class Ending(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What became of a claimed job."""

    claim: Claim
    state: JobState
    """SUCCEEDED, UNAVAILABLE, FAILED, or READY to be tried again."""
    reason: str = ""
    not_before: datetime | None = None
    is_attempt: bool = True
    """False where the upstream would not be asked: such a try is not counted."""
    follow_ups: Sequence[JobSpec] = ()
    cursor: Cursor | None = None
    has_gaps: bool = False
    """An item of its list could not be read: the cursor moves only if that was so in the run before, too."""
    parked: ParkedAnswer | None = None
    """An answer to be kept for the next try."""
    spec: JobSpec | None = None
    """What the next try asks for, where that differs from this one: redirects change it."""
    effects: Sequence[Any] = ()
    """What the source's own writer has to write with it."""
    credential: str = ""
    """Who made the call, or was to make it."""
    calls: int = 0
    unchanged_calls: int = 0
    documents: int = 0
    skipped: int = 0
    """Items of its list that could not be read."""


def claim(tx: Transaction, job_ids: Iterable[int]) -> dict[int, Claim]:
    """Claim those that may run, raising their fences. The others have ended, were canceled, or are unknown."""
    ids = sorted(set(job_ids))
    if not ids:
        return {}
    _CLAIM.run(tx, ids=ids, now=tx.now)
    rows = _CLAIMED.rows(tx, ids=ids)
    waiting = [row[0] for row in rows if row[-1] is not None]
    parked = parked_answer_store.find(tx, waiting) if waiting else {}
    return {row[0]: _claim(row, parked.get(row[0])) for row in rows}


def still_ours(tx: Transaction, claims: Sequence[Claim]) -> list[bool]:
    """For each claim, whether it is the last one of its job; locked until the commit, so that it stays so.

    A claim that is given twice is ours once: a job ends once.
    """
    last = {row[0]: row[1] for row in _HELD.rows(tx, ids=sorted({claim.job.id for claim in claims}))}
    ours: list[bool] = []
    for claim in claims:
        ours.append(last.get(claim.job.id) == claim.fence)
        if ours[-1]:
            del last[claim.job.id]
    return ours


def write_endings(tx: Transaction, endings: Sequence[Ending]) -> None:
    """Write the rows of jobs that ended, and move the cursors of listings that are complete. Claims must be ours."""
    alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for ending in endings:
        uncounted = 0 if ending.is_attempt else 1
        reason = fit_to_keep(ending.reason, most=LONGEST_REASON) if ending.reason else None
        outcome = (ending.state.value, ending.not_before, uncounted, reason or None)
        alike[outcome].append(ending.claim.job.id)
    for (state, again_at, uncounted, reason), ids in alike.items():
        ended_at = None if state == JobState.READY else tx.now
        _END.run(tx, ids=ids, state=state, ended_at=ended_at, again_at=again_at, uncounted=uncounted, reason=reason)
    for ending in endings:
        if ending.spec is not None:
            respecified = update(page_jobs).where(page_jobs.c.id == ending.claim.job.id)
            tx.execute(respecified.values(spec=msgspec.to_builtins(ending.spec)))
    moved = [
        Move(
            ending.claim.source,
            ending.claim.user_id,
            ending.claim.job.run_id,
            ending.claim.job.spec,
            ending.cursor,
            ending.has_gaps,
        )
        for ending in endings
        if ending.cursor is not None
    ]
    if moved:
        move_cursors(tx, moved)
    _write_parked(tx, endings)


def unfinished(tx: Transaction, run_ids: Sequence[int], after: int, limit: int) -> list[StoredJob]:
    """Jobs that still have to be done and wait for no other run, in the order of their ids: what recovery offers."""
    job = page_jobs.c
    those = (job.run_id.in_(run_ids), job.status.in_(UNFINISHED_JOBS), job.awaits_run.is_(None))
    return stored_jobs(tx, *those, job.id > after, limit=limit)


def unfinished_of(tx: Transaction, job_ids: Sequence[int]) -> list[StoredJob]:
    """Those of these jobs that still have to be done, and wait for no other run."""
    those = (page_jobs.c.status.in_(UNFINISHED_JOBS), page_jobs.c.awaits_run.is_(None))
    return stored_jobs(tx, page_jobs.c.id.in_(job_ids), *those)


def runs_of(tx: Transaction, job_ids: Sequence[int]) -> list[int]:
    """The runs to which these jobs belong."""
    found = select(page_jobs.c.run_id).where(page_jobs.c.id.in_(sorted(job_ids))).distinct()
    return [row.run_id for row in tx.execute(found)]


def stored_jobs(tx: Transaction, *those: ColumnElement[bool], limit: int | None = None) -> list[StoredJob]:
    """Jobs of which all this is true, in the order of their ids."""
    found = tx.execute(_STORED.where(*those).order_by(page_jobs.c.id).limit(limit))
    return [
        StoredJob(job_id, run_id, pool, msgspec.convert(spec, JobSpec), not_before, holder)
        for job_id, run_id, spec, not_before, pool, holder in found
    ]


_STORED = (
    select(
        *(page_jobs.c.id, page_jobs.c.run_id, page_jobs.c.spec, page_jobs.c.not_before),
        *(collection_runs.c.pool, collection_cursors.c.last_credential),
    )
    .join_from(page_jobs, collection_runs)
    .join(
        collection_cursors,
        and_(
            page_jobs.c.page_key == FIRST_PAGE,
            collection_cursors.c.source == collection_runs.c.source,
            collection_cursors.c.user_id == func.coalesce(page_jobs.c.owner, collection_runs.c.user_id),
            collection_cursors.c.resource_type == page_jobs.c.job_type,
            collection_cursors.c.resource_key == page_jobs.c.resource_key,
            collection_cursors.c.last_etag.is_not(None),
        ),
        isouter=True,
    )
)

_CLAIMABLE = ", ".join(f"'{state}'" for state in sorted(sources_of(JOB_MOVES, JobState.RUNNING)))
_RAISE = f"""
UPDATE page_jobs
SET status = '{JobState.RUNNING}', fence = fence + 1, attempt_count = attempt_count + 1, started_at = :now
WHERE id"""  # noqa: S608
_CLAIM = Statement(
    {
        "sqlite": f"{_RAISE} IN :ids[] AND status IN ({_CLAIMABLE})",
        # It alone does not go through an index in order by itself.
        "postgresql": f"""
{_RAISE} IN (SELECT id FROM page_jobs WHERE id IN :ids[] AND status IN ({_CLAIMABLE}) ORDER BY id FOR UPDATE)""",  # noqa: S608
        "mysql": f"{_RAISE} IN :ids[] AND status IN ({_CLAIMABLE})",
    }
)
_CLAIMED = Statement(
    f"""
SELECT j.id, j.run_id, j.spec, j.fence, j.attempt_count, j.max_attempts, r.pool, r.source,
       coalesce(j.owner, r.user_id) AS owner,
       c.user_id AS left_by, c.last_cursor, c.last_timestamp, c.last_etag, c.last_credential, r.traceparent,
       p.job_id AS parked
FROM page_jobs j
JOIN collection_runs r ON r.id = j.run_id
LEFT JOIN collection_cursors c
  ON j.page_key = '{FIRST_PAGE}'
 AND c.source = r.source AND c.user_id = coalesce(j.owner, r.user_id)
 AND c.resource_type = j.job_type AND c.resource_key = j.resource_key
LEFT JOIN parked_answers p ON p.job_id = j.id
WHERE j.id IN :ids[] AND j.status = '{JobState.RUNNING}'""",  # noqa: S608
    returns=(
        *("id", "run_id", "spec", "fence", "attempt_count", "max_attempts", "pool", "source", "owner"),
        *("left_by", "last_cursor", "last_timestamp", "last_etag", "last_credential", "traceparent", "parked"),
    ),
)
_HOLD = f"SELECT id, fence FROM page_jobs WHERE id IN :ids[] AND status = '{JobState.RUNNING}'"  # noqa: S608
_HELD = Statement(
    {
        "sqlite": _HOLD,
        "postgresql": f"{_HOLD} ORDER BY id FOR UPDATE",
        "mysql": f"{_HOLD} ORDER BY id FOR UPDATE",
    },
    returns=("id", "fence"),
)
_END = Statement(
    """
UPDATE page_jobs
SET status = :state, completed_at = :ended_at, not_before = :again_at, attempt_count = attempt_count - :uncounted,
    last_error = :reason
WHERE id IN :ids[]"""
)
_decode_spec = msgspec.json.Decoder(JobSpec).decode


def _claim(row: Sequence[Any], parked: ParkedAnswer | None) -> Claim:
    job_id, run_id, spec, fence, attempt, max_attempts, pool, source, user_id, left_by, *left, traceparent, _ = row
    cursor = holder = None
    if left_by is not None and any(value is not None for value in left):
        cursor = Cursor(cursor=left[0], timestamp=left[1], etag=left[2], credential=left[3])
        holder = cursor.credential if cursor.etag is not None else None
    job = StoredJob(job_id, run_id, pool, _decode_spec(spec), None, holder)
    return Claim(job, source, user_id, fence, attempt, max_attempts, cursor, parked, traceparent)


def _write_parked(tx: Transaction, endings: Sequence[Ending]) -> None:
    """Keep what could not be written; forget what is no longer needed."""
    for ending in endings:
        if ending.parked is not None and ending.parked is not ending.claim.parked:
            parked_answer_store.park(tx, ending.claim.job.id, ending.parked)
    over = [ending.claim.job.id for ending in endings if ending.claim.parked is not None and ending.parked is None]
    if over:
        parked_answer_store.forget(tx, over)
