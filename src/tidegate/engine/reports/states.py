"""Reports on active work: runs by state, jobs by state, jobs that run too long, waiting jobs.

Each report is one function that uses indexes; none reads all jobs. The same reports as plain SQL are in
docs/guides/operators-questions.md; a test compares the two.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import FromClause, Select, bindparam, case, func, or_, select

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.engine.lifecycle import ACTIVE_RUNS, OPEN_RUNS, JobState, RunState
from tidegate.engine.tables import allowance_notes, collection_runs, page_jobs
from tidegate.storage.sql import Transaction

_run, _job, _note = collection_runs.c, page_jobs.c, allowance_notes.c
_EVERYTHING = 10**9
"""A limit that is none: what is below one is read by its own index, and not by the one that groups it."""
_WAITING = (JobState.ENQUEUED, JobState.READY)


class RunsInState(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs are in one state."""

    state: RunState
    runs: int
    first: int
    """The number of the oldest of them."""
    last: int
    """And of the newest."""


class RunsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by state, in the order of their lives."""

    since: datetime | None
    """Of the runs that are over, those that ended since then; null: all of them."""
    states: list[RunsInState]


class JobsInState(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a source are in one state."""

    source: str
    state: JobState
    jobs: int


class JobsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of runs that are not over, by source and state."""

    runs: int
    """How many runs that is."""
    states: list[JobsInState]


class SlowJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was claimed long ago, and has not ended."""

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
    """For how long it has been running."""


class SlowReport(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that run too long, the longest first."""

    longer_than_s: float
    running: int
    """Jobs that run, however long."""
    too_long: int
    jobs: list[SlowJob]
    """The first of those that run too long."""


class CredentialBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A credential that must rest, or has little left of its window, as it was written down."""

    credential: str
    bucket: str
    remaining: int | None
    """Calls that were left when this was written; null where it is only told to rest."""
    resets_at: datetime | None
    blocked_until: datetime | None


class PoolQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that wait for the credentials of one pool, as the database knows it."""

    pool: str
    runs: int
    waiting: int
    """Jobs that are offered, and need a permit."""
    retrying: int
    """Jobs that are tried again, not before a moment."""
    next_retry_at: datetime | None
    rests: list[CredentialBlock]
    """What was noted of its credentials; the gate knows more."""


def runs_by_state(tx: Transaction, since: datetime | None = None) -> RunsReport:
    """Count the runs in each state; with `since`, those that are not over and those that ended since then."""
    if since is None:
        found = _runs_in(tx, _ALL_RUNS)
    else:
        found = _runs_in(tx, _ACTIVE_RUNS) | _runs_in(tx, _ENDED_RUNS, since=since)
    return RunsReport(since=since, states=[found[state] for state in RunState if state in found])


def _counted(those: FromClause) -> Select[Any, int, Any, Any]:
    return select(those.c.status, func.count(), func.min(those.c.id), func.max(those.c.id)).group_by(those.c.status)


# Made once: the dashboard asks every second, and making a statement takes longer than running it.
_ALL_RUNS = _counted(collection_runs)
_STATES = select(_run.id, _run.status).limit(_EVERYTHING)
_ACTIVE_RUNS = _counted(_STATES.where(_run.status.in_(ACTIVE_RUNS)).subquery())
_ENDED_RUNS = _counted(_STATES.where(_run.completed_at >= bindparam("since", type_=_run.completed_at.type)).subquery())


def _runs_in(tx: Transaction, counted: Select[Any, int, Any, Any], **given: datetime) -> dict[RunState, RunsInState]:
    found = [
        RunsInState(state=RunState(status), runs=runs, first=first, last=last)
        for status, runs, first, last in tx.execute(counted, given)
    ]
    return {one.state: one for one in found}


def jobs_by_state(tx: Transaction) -> JobsReport:
    """Count the jobs of all runs that are not over, by source and state."""
    active = _run.status.in_(ACTIVE_RUNS)
    runs = tx.execute(select(func.count()).select_from(collection_runs).where(active)).scalar_one()
    counted = select(_run.source, _job.status, func.count()).join_from(collection_runs, page_jobs).where(active)
    found = {(row[0], JobState(row[1])): row[2] for row in tx.execute(counted.group_by(_run.source, _job.status))}
    states = [
        JobsInState(source=source, state=state, jobs=found[source, state])
        for source in sorted({source for source, _ in found})
        for state in JobState
        if (source, state) in found
    ]
    return JobsReport(runs=runs, states=states)


def slow_jobs(tx: Transaction, longer_than: timedelta, limit: int = 20) -> SlowReport:
    """Find jobs that have been running for longer than that, the longest first."""
    require_not_negative("longer_than", longer_than.total_seconds())
    require_positive("limit", limit)
    running = (_run.status.in_(OPEN_RUNS), _job.status == JobState.RUNNING)
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
    """Count the jobs that wait in each pool, where most wait first."""
    require_positive("limit", limit)
    waiting, retrying = ((func.sum(case((_job.status == each, 1), else_=0))) for each in _WAITING)
    counted = (  # an index alone answers it
        select(_run.pool, func.count(_run.id.distinct()), waiting, retrying)
        .join_from(collection_runs, page_jobs)
        .where(_run.status.in_(OPEN_RUNS), _job.status.in_(_WAITING))
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
    """What is noted of the credentials of these pools, and not yet past."""
    noted = select(allowance_notes).where(_note.pool.in_(pools)).order_by(_note.credential, _note.bucket)
    found: dict[str, list[CredentialBlock]] = {}
    for row in tx.execute(noted.where(or_(_note.blocked_until > tx.now, _note.resets_at > tx.now))):
        found.setdefault(row.pool, []).append(msgspec.convert(row, CredentialBlock, from_attributes=True))
    return found


def _next_retries(tx: Transaction) -> dict[str, datetime]:
    """When the next job of each pool is tried again."""
    first = (
        select(_run.pool, func.min(_job.not_before).label("at"))
        .join_from(collection_runs, page_jobs)
        .where(_run.status.in_(OPEN_RUNS), _job.status == JobState.READY)
        .group_by(_run.pool)
    )
    return {row.pool: row.at for row in tx.execute(first) if row.at is not None}
