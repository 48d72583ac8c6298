"""Runs as rows: begin, complete, cancel, retry, and fail those of a pool without credentials."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidegate.core.arguments import require_name
from tidegate.core.errors import Conflict, NotFound, TidegateError
from tidegate.core.telemetry.logs import is_enabled
from tidegate.core.transitions import sources_of
from tidegate.engine import claims, parked_answer_store
from tidegate.engine.executions import ExecutionOutcome, abandon_run
from tidegate.engine.job_log import log_ended, log_resumed, log_started
from tidegate.engine.job_store import StoredJob, add_jobs, in_parts, key_of, lock_jobs, stored_jobs
from tidegate.engine.lifecycle import (
    ACTIVE_RUNS,
    JOB_MOVES,
    OPEN_RUNS,
    RUN_MOVES,
    UNFINISHED_JOBS,
    JobState,
    RunState,
)
from tidegate.engine.run_counters import explain, lock_runs
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import JobSpec, Source, Subject
from tidegate.engine.source_addresses import AddressedSource, require_source_address
from tidegate.engine.tables import collection_runs, in_state, page_jobs, state_values
from tidegate.storage.sql import Transaction

_USUAL = CollectSettings()


class RunActive(TidegateError):
    """The user has an active run already; a second one would fetch the same things twice."""

    problem = "run_active"

    def __init__(self, user_id: str, run_id: int) -> None:
        super().__init__(f"{user_id} has an active run already: {run_id}")
        self.user_id, self.run_id = user_id, run_id


class RunCanceled(Conflict):
    """The run was canceled; its jobs cannot be retried."""

    def __init__(self, run_id: int) -> None:
        super().__init__(f"run {run_id} was canceled, and stays so; begin a new one")
        self.run_id = run_id


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `collection_runs`."""

    id: int
    source: str
    user_id: str
    login: str
    pool: str
    status: RunState
    total_jobs: int
    succeeded_jobs: int
    """Jobs that are done, including unavailable ones: the upstream shows their resource to no credential."""
    failed_jobs: int
    canceled_jobs: int
    last_error: str | None
    """The error of the last job that failed."""
    calls: int
    """Calls made to the upstream, whatever their result."""
    unchanged_calls: int
    """Calls answered with "not modified", which the upstream does not count."""
    documents: int
    """Documents that were read; new and changed ones were written."""
    skipped_items: int = 0
    """Items of lists that could not be read: null, without an id, of another type."""
    triggered_by: str
    traceparent: str | None = None
    """The trace of the run, where it is traced."""
    options: Mapping[str, Any]
    created_at: datetime
    started_at: datetime | None
    """When its first job ended."""
    completed_at: datetime | None

    @property
    def ended_jobs(self) -> int:
        """The number of jobs that need no more work."""
        return self.succeeded_jobs + self.failed_jobs + self.canceled_jobs

    @property
    def active_key(self) -> str:
        """A value that is unique among active runs."""
        return _active_key(self.source, self.user_id)


class NewRun(msgspec.Struct, frozen=True):
    """The input of `begin`."""

    source: str
    subject: Subject
    pool: str
    triggered_by: str
    specs: list[JobSpec]
    address: str | None = None
    """The address of the source in this process."""
    max_attempts: int = _USUAL.max_attempts
    """The number of attempts of each of its first jobs."""
    traceparent: str | None = None
    """The trace of the run, where it is traced."""

    @classmethod
    def of(
        cls,
        source: Source,
        subject: Subject,
        pool: str,
        triggered_by: str,
        settings: CollectSettings | None = None,
        *,
        traceparent: str | None = None,
    ) -> "NewRun":
        """Return the input for a run of `source`, with its first jobs."""
        address, tries = (
            source.address if isinstance(source, AddressedSource) else None,
            (settings or _USUAL).max_attempts,
        )
        specs = list(source.first_jobs(subject))
        return cls(source.name, subject, pool, triggered_by, specs, address, tries, traceparent)


def begin(tx: Transaction, beginning: NewRun) -> tuple[int, list[StoredJob]]:
    """Insert the run and its first jobs; raise `RunActive` where the user has one that is not over.

    Raises `SourceAddressConflict` where the source's address was changed, which is possible until there is a run.
    """
    source, subject, pool = beginning.source, beginning.subject, beginning.pool
    if beginning.address is not None:
        require_source_address(tx, source, beginning.address)
    active_key = _active_key(source, subject.user_id)
    _refuse_second(tx, subject.user_id, active_key)
    values = {
        "source": source,
        "user_id": subject.user_id,
        "login": subject.login,
        "pool": pool,
        "options": dict(subject.options),
        "status": RunState.PLANNING,
        "triggered_by": beginning.triggered_by,
        "active_key": active_key,
        "traceparent": beginning.traceparent,
        "created_at": tx.now,
        "total_jobs": len({key_of(0, spec) for spec in beginning.specs}),
        "succeeded_jobs": 0,
        "failed_jobs": 0,
        "canceled_jobs": 0,
    }
    try:
        # On PostgreSQL an error ends the whole transaction, and the query after it would fail. The savepoint prevents
        # that.
        with tx.savepoint():
            (run_id,) = tx.execute(insert(collection_runs).values(values)).inserted_primary_key or (0,)
    except IntegrityError:  # another transaction began one at the same time
        _refuse_second(tx, subject.user_id, active_key)
        raise
    first = [(run_id, spec) for spec in beginning.specs]
    tx.after_commit(partial(log_started, run_id, beginning))
    added = add_jobs(tx, first, max_attempts=beginning.max_attempts)
    return run_id, claims.claim_resources(tx, added, {run_id: source})


def complete(tx: Transaction, run_id: int, planning_kinds: frozenset[str] = frozenset()) -> bool:
    """End a run after its finalizers. Returns False where it was resumed meanwhile.

    A run with a failed planning job is FAILED: which jobs it lacks is unknown.
    """
    # Locked before the failed jobs are read: a retry of these jobs locks the run too.
    lock_runs(tx, [run_id])
    job, run = page_jobs.c, collection_runs.c
    unplanned = select(job.job_type, job.resource_key, job.last_error).where(
        job.run_id == run_id, job.end_state == JobState.FAILED, job.job_type.in_(planning_kinds)
    )
    # The last one: a job that examines the failure of another one has the better reason.
    failure = tx.execute(unplanned.order_by(job.id.desc()).limit(1)).one_or_none()
    result: dict[str, Any] = {"status": RunState.COMPLETED}
    if failure is not None:
        result = {"status": RunState.FAILED, "last_error": explain(*failure)}
    over = update(collection_runs).where(run.id == run_id, run.status == RunState.FINALIZING)
    is_over = tx.execute(over.values(completed_at=tx.now, active_key=None, **result)).rowcount == 1
    if is_over:
        tell_end(tx, run_id)
    return is_over


def release(tx: Transaction, run_id: int) -> None:
    """Allow the user another run while the finalizers of this one are not done."""
    run = collection_runs.c
    tx.execute(
        update(collection_runs).where(run.id == run_id, run.status == RunState.FINALIZING).values(active_key=None)
    )


def cancel(tx: Transaction, run_id: int) -> list[int] | None:
    """End a run at once. Returns its unfinished jobs, which the gate should forget; None where it was over.

    Jobs of other runs may wait for it: release them with `claims.release_late` after the commit.
    """
    job, run = page_jobs.c, collection_runs.c
    ids = [job_id for _, job_id in _lock_unfinished(tx, [run_id])]
    # Read after the locks, so it cannot change any more.
    if get(tx, run_id).status not in OPEN_RUNS:
        return None
    # While the jobs are still RUNNING, by which their open executions are found.
    abandon_run(tx, run_id, ExecutionOutcome.CANCELED)
    canceled = tx.execute(
        update(page_jobs)
        .where(job.run_id == run_id, in_state(*sources_of(JOB_MOVES, JobState.CANCELED)))
        .values(**state_values(JobState.CANCELED), completed_at=tx.now)
    )
    parked_answer_store.forget_run(tx, run_id)
    over = {"status": RunState.CANCELED, "completed_at": tx.now, "active_key": None}
    counted = {"canceled_jobs": run.canceled_jobs + canceled.rowcount}
    tx.execute(update(collection_runs).where(run.id == run_id).values(over | counted))
    tell_end(tx, run_id)
    return ids


def retry_failed(tx: Transaction, run_id: int) -> list[StoredJob]:
    """Reset the failed jobs of a run to their first attempt. Raises `RunActive`, `RunCanceled`."""
    return _do_again(tx, run_id, page_jobs.c.run_id == run_id)


def retry_job(tx: Transaction, job_id: int) -> list[StoredJob]:
    """Reset one failed job; returns none where it has not failed. Raises `NotFound`, `RunActive`, `RunCanceled`."""
    run_id = tx.execute(select(page_jobs.c.run_id).where(page_jobs.c.id == job_id)).scalar_one_or_none()
    if run_id is None:
        raise NotFound("job", job_id)
    return _do_again(tx, run_id, page_jobs.c.id == job_id)


def pools_in_use(tx: Transaction) -> list[str]:
    """Return the pools of open runs."""
    found = select(collection_runs.c.pool).where(collection_runs.c.status.in_(OPEN_RUNS)).distinct()
    return [row.pool for row in tx.execute(found)]


def fail_pool(tx: Transaction, pool: str, reason: str) -> dict[int, list[int]]:
    """Fail the open runs of a pool that has no credential left, including jobs that workers are executing.

    Results of those jobs are rejected, so they add no follow-ups. A failed run can be retried; it continues where it
    stopped. Returns by run the unfinished jobs, which the gate should forget. Jobs of other runs may wait for these
    runs: release them with `claims.release_late` after the commit.
    """
    require_name("pool", pool)
    run = collection_runs.c
    those = select(run.id).where(run.pool == pool, run.status.in_(OPEN_RUNS)).order_by(run.id)
    found = list(tx.execute(those).scalars())
    if not found:
        return {}
    unfinished = _lock_unfinished(tx, found)
    # Read again under the locks: a run may have ended since it was found.
    failed: dict[int, list[int]] = {run_id: [] for run_id in tx.execute(those.where(run.id.in_(found))).scalars()}
    for run_id, job_id in unfinished:
        if run_id in failed:
            failed[run_id].append(job_id)
    for run_id, job_ids in failed.items():
        _fail_run(tx, run_id, reason, len(job_ids))
    return failed


def get(tx: Transaction, run_id: int) -> Run:
    """Return a run; raise `NotFound` where there is none."""
    row = tx.execute(select(collection_runs).where(collection_runs.c.id == run_id)).one_or_none()
    if row is None:
        raise NotFound("run", run_id)
    return from_row(row)


def tell_end(tx: Transaction, run_id: int) -> None:
    """Log after the commit that this run is over."""
    if is_enabled("info"):
        tx.after_commit(partial(log_ended, get(tx, run_id)))


def active(tx: Transaction) -> list[Run]:
    """Return the runs that are not over."""
    return [
        from_row(row) for row in tx.execute(select(collection_runs).where(collection_runs.c.status.in_(ACTIVE_RUNS)))
    ]


def from_row(row: Any) -> Run:
    """Return a complete row of `collection_runs` as a `Run`."""
    values = {name: getattr(row, name) for name in Run.__struct_fields__ if name != "status"}
    return Run(status=RunState(row.status), **values)


def _lock_unfinished(tx: Transaction, run_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Lock the unfinished jobs of some runs, the runs, and the claims for which jobs of them wait.

    Returns the run and the id of each job. Jobs that were added meanwhile may be locked by a transaction that waits for
    one of the runs. They are not waited for: the whole transaction is repeated.
    """
    job = page_jobs.c
    unfinished = select(job.run_id, job.id).where(job.run_id.in_(run_ids), job.end_state.is_(None))
    # Jobs that wait for another run are left to the last statement: they may be changed only under the claims.
    found = tx.execute(unfinished.where(job.awaits_run.is_(None)).order_by(job.id)).all()
    lock_jobs(tx, [row.id for row in found], UNFINISHED_JOBS)
    lock_runs(tx, run_ids)
    claims.lock_waited(tx, run_ids)
    return [(row.run_id, row.id) for row in tx.execute(unfinished.order_by(job.id).with_for_update(nowait=True))]


def _fail_run(tx: Transaction, run_id: int, reason: str, unfinished: int) -> None:
    run, job = collection_runs.c, page_jobs.c
    abandon_run(tx, run_id, ExecutionOutcome.FAILED, reason)
    tx.execute(
        update(page_jobs)
        .where(job.run_id == run_id, in_state(*sources_of(JOB_MOVES, JobState.FAILED)))
        .values(**state_values(JobState.FAILED), completed_at=tx.now, last_error=reason)
    )
    tx.execute(
        update(collection_runs)
        .where(run.id == run_id, run.status.in_(sources_of(RUN_MOVES, RunState.FAILED)))
        .values(
            status=RunState.FAILED,
            completed_at=tx.now,
            active_key=None,
            failed_jobs=run.failed_jobs + unfinished,
            last_error=reason,
        )
    )
    tell_end(tx, run_id)


def _active_key(source: str, user_id: str) -> str:
    return f"{source}:{user_id}"


def _refuse_second(tx: Transaction, user_id: str, active_key: str) -> None:
    present = select(collection_runs.c.id).where(collection_runs.c.active_key == active_key)
    if (other := tx.execute(present).scalar()) is not None:
        raise RunActive(user_id, other)


def _do_again(tx: Transaction, run_id: int, those: ColumnElement[bool]) -> list[StoredJob]:
    """Reset failed jobs; return those that do not wait for another run, which collects the same resource."""
    failed = (those, page_jobs.c.end_state == JobState.FAILED)
    # Found without locks, locked in the order of their ids, then read again: another request may have retried some.
    found = [job.id for job in stored_jobs(tx, *failed)]
    ours = set(lock_jobs(tx, found, (JobState.FAILED,)))
    lock_runs(tx, [run_id])
    run = get(tx, run_id)
    if run.status is RunState.CANCELED:
        raise RunCanceled(run_id)
    jobs = [job for job in stored_jobs(tx, *failed) if job.id in ours]
    if not jobs:
        return []
    _take_up_again(tx, run, fewer=len(jobs))
    tx.after_commit(partial(log_resumed, run, len(jobs)))
    first = {**state_values(JobState.ENQUEUED), "attempt_count": 0, "not_before": None, "completed_at": None}
    for ids in in_parts(sorted(ours)):
        again = update(page_jobs).where(page_jobs.c.id.in_(ids))
        tx.execute(again.values(last_error=None, awaits_run=None, **first))
    return claims.claim_again(tx, jobs, run.source)


def _take_up_again(tx: Transaction, run: Run, *, fewer: int) -> None:
    """Reduce the number of failed jobs by `fewer`, and open a run that was over."""
    row = collection_runs.c
    values: dict[str, Any] = {"failed_jobs": row.failed_jobs - fewer}
    if fewer == run.failed_jobs:
        values["last_error"] = None
    if run.status not in OPEN_RUNS:
        values |= {"status": RunState.RUNNING, "active_key": run.active_key, "completed_at": None}
    try:
        # As in `begin`: the query after an error needs a usable transaction.
        with tx.savepoint():
            tx.execute(update(collection_runs).where(row.id == run.id).values(values))
    except IntegrityError:  # the user has another active run
        _refuse_second(tx, run.user_id, run.active_key)
        raise
