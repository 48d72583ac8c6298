"""Figures over all runs for the dashboard. Every query is limited to active and recent runs."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import func, select

from tidegate.core.arguments import require_positive
from tidegate.engine.lifecycle import ACTIVE_RUNS, OPEN_RUNS, JobState
from tidegate.engine.reports.states import runs_by_state
from tidegate.engine.runs import Run, from_row
from tidegate.engine.tables import collection_runs, in_state, page_jobs
from tidegate.storage.sql import Transaction

_LOOKED_AT = 1000
"""How many of the newest runs are searched for failed jobs, so that the cost does not grow with the history."""
_AT_ONCE = 500
_LATELY = timedelta(hours=24)
_run, _job = collection_runs.c, page_jobs.c


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of active and recently ended runs by state."""

    planning: int = 0
    running: int = 0
    finalizing: int = 0
    completed: int = 0
    """Runs that were completed within the last 24 hours."""
    failed: int = 0
    """Runs that failed within the last 24 hours."""
    canceled: int = 0
    """Runs that were canceled within the last 24 hours."""

    @property
    def active(self) -> int:
        """Runs that have not ended."""
        return self.planning + self.running + self.finalizing


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of active runs by state."""

    total: int = 0
    waiting: int = 0
    """Jobs that wait for a permit or for a worker."""
    running: int = 0
    retrying: int = 0
    """Jobs that will be retried after a given time."""
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0

    @property
    def pending(self) -> int:
        """Jobs that have not ended."""
        return self.waiting + self.running + self.retrying


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job with its run, subject and reason."""

    job_id: int
    run_id: int
    source: str
    login: str
    kind: str
    resource: str
    attempts: int
    reason: str
    at: datetime | None


class EndedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The number of ended jobs of a run."""

    created_at: datetime
    """When the run was started."""
    succeeded: int
    failed: int


# Built once, because the dashboard runs them often and building a statement takes longer than running it.
_SUMMED = select(
    *(
        func.coalesce(func.sum(each), 0)
        for each in (_run.total_jobs, _run.succeeded_jobs, _run.failed_jobs, _run.canceled_jobs)
    )
).where(_run.status.in_(ACTIVE_RUNS))
_UNDER_WAY = (
    select(_job.status, func.count())
    .join(collection_runs, _run.id == _job.run_id)
    .where(_run.status.in_(OPEN_RUNS), in_state(JobState.RUNNING, JobState.READY))
    .group_by(_job.status)
)
_ACTIVE = select(collection_runs).where(_run.status.in_(ACTIVE_RUNS)).order_by(_run.id.desc())
_POOLS = select(_run.pool).where(_run.status.in_(OPEN_RUNS)).distinct().order_by(_run.pool)
_NEWEST = select(func.coalesce(func.max(_run.id), 0)).scalar_subquery()
_LATELY_FAILED = select(_run.id).where(_run.id > _NEWEST - _LOOKED_AT, _run.failed_jobs > 0).order_by(_run.id.desc())
_ACTIVE_FAILED = select(_run.id).where(_run.status.in_(ACTIVE_RUNS), _run.failed_jobs > 0).order_by(_run.id.desc())
_FAILED = (
    select(
        *(_job.id.label("job_id"), _job.run_id, _run.source, _run.login),
        *(_job.job_type.label("kind"), _job.resource_key.label("resource"), _job.attempt_count.label("attempts")),
        *(func.coalesce(_job.last_error, "").label("reason"), _job.completed_at.label("at")),
    )
    .join(collection_runs, _run.id == _job.run_id)
    .where(_job.end_state == JobState.FAILED)
    .order_by(_job.id.desc())
)


def count_runs(tx: Transaction) -> RunCounts:
    """Count active and recently ended runs by state."""
    report = runs_by_state(tx, since=tx.now - _LATELY)
    return RunCounts(**{str(each.state): each.runs for each in report.states})


def count_jobs(tx: Transaction) -> JobCounts:
    """Count the jobs of active runs by state, from the counters of the runs as far as possible."""
    total, succeeded, failed, canceled = (int(each) for each in tx.execute(_SUMMED).one())
    counts: dict[str, int] = {row[0]: row[1] for row in tx.execute(_UNDER_WAY)}
    running, retrying = counts.get(JobState.RUNNING, 0), counts.get(JobState.READY, 0)
    # Not negative: the two queries may see different points in time.
    waiting = max(0, total - succeeded - failed - canceled - running - retrying)
    return JobCounts(
        total=total,
        waiting=waiting,
        running=running,
        retrying=retrying,
        succeeded=succeeded,
        failed=failed,
        canceled=canceled,
    )


def newest_active(tx: Transaction, limit: int, *, source: str | None = None) -> list[Run]:
    """Return the newest active runs, of one source or of all sources."""
    require_positive("limit", limit)
    wanted = _ACTIVE if source is None else _ACTIVE.where(_run.source == source)
    return [from_row(row) for row in tx.execute(wanted.limit(limit))]


def busy_pools(tx: Transaction, limit: int) -> list[str]:
    """Return the pools of open runs, ordered by name."""
    require_positive("limit", limit)
    return list(tx.execute(_POOLS.limit(limit)).scalars())


def latest_failures(tx: Transaction, limit: int) -> list[FailedJob]:
    """Return the jobs of active and recent runs that failed last, latest first."""
    require_positive("limit", limit)
    run_ids = set[int]()
    for those in (_LATELY_FAILED, _ACTIVE_FAILED):
        run_ids |= set(tx.execute(those.limit(limit)).scalars())
    if not run_ids:
        return []
    failed = _FAILED.where(_job.run_id.in_(sorted(run_ids))).limit(limit)
    found = [FailedJob(**row) for row in tx.execute(failed).mappings()]
    return sorted(found, key=lambda job: (job.at is not None, job.at, job.job_id), reverse=True)


def ended_of(tx: Transaction, run_ids: Sequence[int]) -> dict[int, EndedJobs]:
    """Return the number of ended jobs of these runs, by run id. Unknown runs are omitted."""
    found: dict[int, EndedJobs] = {}
    for start in range(0, len(run_ids), _AT_ONCE):
        some = run_ids[start : start + _AT_ONCE]
        wanted = select(_run.id, _run.created_at, _run.succeeded_jobs, _run.failed_jobs).where(_run.id.in_(some))
        for run_id, created_at, succeeded, failed in tx.execute(wanted):
            found[run_id] = EndedJobs(created_at=created_at, succeeded=succeeded, failed=failed)
    return found
