"""Reports on active work: runs by state, jobs by state, jobs that run too long, waiting jobs.

Each report is one function that uses indexes; none reads all jobs. The same reports as plain SQL are in
docs/guides/operators-questions.md; a test compares the two.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import FromClause, Select, bindparam, case, func, or_, select, union_all

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.engine.lifecycle import ACTIVE_RUNS, OPEN_RUNS, JobState, RunState
from tidegate.engine.tables import allowance_notes, collection_runs, in_state, page_jobs
from tidegate.storage.sql import Transaction

_run, _job, _note = collection_runs.c, page_jobs.c, allowance_notes.c
_EVERYTHING = 10**9
"""A limit without effect: a subquery with a limit is read with its own index, not with that of the grouping."""
_WAITING = (JobState.ENQUEUED, JobState.READY)


class RunsInState(msgspec.Struct, frozen=True, kw_only=True):
    """The number of runs in one state."""

    state: RunState
    runs: int
    first: int
    """Id of the oldest run."""
    last: int
    """Id of the newest run."""


class RunsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by state, in the order of the life cycle."""

    since: datetime | None
    """Ended runs are included if they ended since then; null: all of them."""
    states: list[RunsInState]


class JobsInState(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of a source in one state."""

    source: str
    state: JobState
    jobs: int


class JobsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of active runs by source and state."""

    runs: int
    """The number of active runs."""
    states: list[JobsInState]


class SlowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was claimed a long time ago and has not ended."""

    id: int
    run_id: int
    source: str
    login: str
    kind: str
    resource: str
    page: str
    attempts: int
    max_attempts: int
    started_at: datetime
    seconds: float
    """Time since the claim, in seconds."""


class SlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that have been running for longer than a threshold, longest first."""

    longer_than_s: float
    running: int
    """All running jobs."""
    too_long: int
    """Running jobs above the threshold."""
    jobs: list[SlowJob]
    """The first running jobs above the threshold."""


class CredentialBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A stored record of a credential that is blocked or has few calls left in its window."""

    credential: str
    bucket: str
    remaining: int | None
    """Remaining calls at the time of the record; null if the credential is only blocked."""
    resets_at: datetime | None
    blocked_until: datetime | None


class PoolQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that wait for the credentials of one pool, as stored in the database."""

    pool: str
    runs: int
    waiting: int
    """Jobs that are enqueued and need a permit."""
    retrying: int
    """Jobs that will be retried after a given time."""
    next_retry_at: datetime | None
    rests: list[CredentialBlock]
    """Stored records of its credentials. The gate has more recent information."""


def runs_by_state(tx: Transaction, since: datetime | None = None) -> RunsReport:
    """Count runs by state; with `since`, active runs and runs that ended since then."""
    if since is None:
        found = _runs_in(tx, _ALL_RUNS)
    else:
        found = _runs_in(tx, _ACTIVE_RUNS) | _runs_in(tx, _ENDED_RUNS, since=since)
    return RunsReport(since=since, states=[found[state] for state in RunState if state in found])


def _count_by_status(those: FromClause) -> Select[Any, int, Any, Any]:
    return select(those.c.status, func.count(), func.min(those.c.id), func.max(those.c.id)).group_by(those.c.status)


# Built once, because the dashboard runs them often and building a statement takes longer than running it.
_ALL_RUNS = _count_by_status(collection_runs)
_STATES = select(_run.id, _run.status).limit(_EVERYTHING)
_ACTIVE_RUNS = _count_by_status(_STATES.where(_run.status.in_(ACTIVE_RUNS)).subquery())
_ENDED_RUNS = _count_by_status(
    _STATES.where(_run.completed_at >= bindparam("since", type_=_run.completed_at.type)).subquery()
)


def _runs_in(tx: Transaction, counted: Select[Any, int, Any, Any], **given: datetime) -> dict[RunState, RunsInState]:
    found = [
        RunsInState(state=RunState(status), runs=runs, first=first, last=last)
        for status, runs, first, last in tx.execute(counted, given)
    ]
    return {one.state: one for one in found}


def jobs_by_state(tx: Transaction) -> JobsReport:
    """Count the jobs of active runs by source and state."""
    active = _run.status.in_(ACTIVE_RUNS)
    runs = tx.execute(select(func.count()).select_from(collection_runs).where(active)).scalar_one()
    ended, unfinished = (
        select(_run.source, state.label("state"), func.count().label("jobs"))
        .join_from(collection_runs, page_jobs)
        .where(active, those)
        .group_by(_run.source, state)
        # An index alone counts the ended jobs. Only for the unfinished ones, the rows are read.
        for state, those in ((_job.end_state, _job.end_state.is_not(None)), (_job.status, _job.end_state.is_(None)))
    )
    found = {(row[0], JobState(row[1])): row[2] for row in tx.execute(union_all(ended, unfinished))}
    states = [
        JobsInState(source=source, state=state, jobs=found[source, state])
        for source in sorted({source for source, _ in found})
        for state in JobState
        if (source, state) in found
    ]
    return JobsReport(runs=runs, states=states)


def slow_jobs(tx: Transaction, longer_than: timedelta, limit: int = 20) -> SlowReport:
    """Find jobs that have been running for longer than `longer_than`, longest first."""
    require_not_negative("longer_than", longer_than.total_seconds())
    require_positive("limit", limit)
    running = (_run.status.in_(OPEN_RUNS), in_state(JobState.RUNNING))
    too_long = _job.started_at <= tx.now - longer_than
    joined = select(func.count()).join_from(collection_runs, page_jobs).where(*running)
    those = (
        select(
            *(_job.id, _job.run_id, _run.source, _run.login, _job.job_type.label("kind")),
            *(_job.resource_key.label("resource"), _job.page_key.label("page")),
            *(_job.attempt_count.label("attempts"), _job.max_attempts, _job.started_at),
        )
        .join_from(collection_runs, page_jobs)
        .where(*running, too_long)
        .order_by(_job.started_at, _job.id)
        .limit(limit)
    )
    rows = tx.execute(those).mappings()
    return SlowReport(
        longer_than_s=longer_than.total_seconds(),
        running=tx.execute(joined).scalar_one(),
        too_long=tx.execute(joined.where(too_long)).scalar_one(),
        jobs=[SlowJob(**row, seconds=round((tx.now - row["started_at"]).total_seconds(), 3)) for row in rows],
    )


def queues(tx: Transaction, limit: int = 50) -> list[PoolQueue]:
    """Count the waiting jobs of each pool, the longest queue first."""
    require_positive("limit", limit)
    waiting, retrying = ((func.sum(case((_job.status == each, 1), else_=0))) for each in _WAITING)
    counted = (
        select(_run.pool, func.count(_run.id.distinct()), waiting, retrying)
        .join_from(collection_runs, page_jobs)
        .where(_run.status.in_(OPEN_RUNS), in_state(*_WAITING))
        .group_by(_run.pool)
        .order_by(waiting.desc(), _run.pool)
        .limit(limit)
    )
    found = tx.execute(counted).all()
    rests = _rests(tx, [row[0] for row in found])
    retries = _next_retries(tx) if any(row[3] for row in found) else {}
    return [
        PoolQueue(
            pool=pool,
            runs=runs,
            waiting=int(offered),
            retrying=int(postponed),
            next_retry_at=retries.get(pool),
            rests=rests.get(pool, []),
        )
        for pool, runs, offered, postponed in found
    ]


def _rests(tx: Transaction, pools: Sequence[str]) -> Mapping[str, list[CredentialBlock]]:
    """Stored records of the credentials of these pools that have not expired."""
    noted = select(allowance_notes).where(_note.pool.in_(pools)).order_by(_note.credential, _note.bucket)
    found: dict[str, list[CredentialBlock]] = {}
    for row in tx.execute(noted.where(or_(_note.blocked_until > tx.now, _note.resets_at > tx.now))):
        found.setdefault(row.pool, []).append(msgspec.convert(row, CredentialBlock, from_attributes=True))
    return found


def _next_retries(tx: Transaction) -> dict[str, datetime]:
    """When the next job of each pool will be retried."""
    first = (
        select(_run.pool, func.min(_job.not_before).label("at"))
        .join_from(collection_runs, page_jobs)
        .where(_run.status.in_(OPEN_RUNS), in_state(JobState.READY))
        .group_by(_run.pool)
    )
    return {row.pool: row.at for row in tx.execute(first) if row.at is not None}
