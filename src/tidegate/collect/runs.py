"""A run's beginning, its counters, and its end, which exactly one transaction decides."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidegate.collect.ledger import Ending, StoredJob, add_jobs
from tidegate.collect.lifecycle import (
    ACTIVE_RUNS,
    JOB_MOVES,
    OPEN_RUNS,
    RUN_MOVES,
    UNFINISHED_JOBS,
    JobState,
    RunState,
)
from tidegate.collect.source import JobSpec, Subject
from tidegate.collect.tables import collection_runs, page_jobs
from tidegate.database import Transaction, outbox
from tidegate.database.outbox import Event
from tidegate.kernel.errors import NotFound, TidegateError
from tidegate.kernel.transitions import sources_of

RUN_ENDED = "collection.run_ended"
"""The event that a run has no job left to do."""


class RunActive(TidegateError):
    """The user has an active run already; a second one would fetch the same things twice."""

    def __init__(self, login: str, run_id: int) -> None:
        super().__init__(f"{login} has an active run already: {run_id}")
        self.login, self.run_id = login, run_id


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its row has it."""

    id: int
    source: str
    user_id: str
    login: str
    pool: str
    status: RunState
    total_jobs: int
    succeeded_jobs: int
    failed_jobs: int
    canceled_jobs: int
    last_error: str | None

    @property
    def ended_jobs(self) -> int:
        """Those that need no more work."""
        return self.succeeded_jobs + self.failed_jobs + self.canceled_jobs


class Beginning(msgspec.Struct, frozen=True):
    """What a run begins with."""

    source: str
    subject: Subject
    pool: str
    triggered_by: str
    specs: list[JobSpec]


def begin(tx: Transaction, beginning: Beginning) -> tuple[int, list[StoredJob]]:
    """Write the run and its first jobs; raise `RunActive` where the user has one that is not over."""
    source, subject, pool = beginning.source, beginning.subject, beginning.pool
    active_key = f"{source}:{subject.user_id}"
    _refuse_second(tx, subject.login, active_key)
    values = {
        "source": source,
        "user_id": subject.user_id,
        "github_login": subject.login,
        "pool": pool,
        "options": dict(subject.options),
        "status": RunState.PLANNING,
        "triggered_by": beginning.triggered_by,
        "active_key": active_key,
        "created_at": tx.now,
        "total_jobs": 0,
        "succeeded_jobs": 0,
        "failed_jobs": 0,
        "canceled_jobs": 0,
    }
    try:
        with tx.savepoint():
            (run_id,) = tx.execute(insert(collection_runs).values(values)).inserted_primary_key or (0,)
    except IntegrityError:  # somebody else began one in this very moment
        _refuse_second(tx, subject.login, active_key)
        raise
    jobs = add_jobs(tx, run_id, pool, beginning.specs)
    _raise_counters(tx, run_id, {"total_jobs": len(jobs)})
    return run_id, jobs


def _refuse_second(tx: Transaction, login: str, active_key: str) -> None:
    present = select(collection_runs.c.id).where(collection_runs.c.active_key == active_key)
    if (other := tx.execute(present).scalar()) is not None:
        raise RunActive(login, other)


def account_for(tx: Transaction, endings: Sequence[Ending], planning: Mapping[str, frozenset[str]]) -> list[StoredJob]:
    """Add the follow-ups of jobs that ended, move their runs' counters, and end the runs that have no job left.

    Returns the new jobs. `planning` tells each source's kinds of jobs that plan.
    """
    added: list[StoredJob] = []
    by_run: defaultdict[int, list[Ending]] = defaultdict(list)
    for ending in endings:
        by_run[ending.claim.job.run_id].append(ending)
    for run_id in sorted(by_run):
        ended = by_run[run_id]
        _lock(tx, run_id)
        new = add_jobs(tx, run_id, ended[0].claim.job.pool, [spec for each in ended for spec in each.follow_ups])
        states = Counter(ending.state for ending in ended)
        changes = {
            "total_jobs": len(new),
            "succeeded_jobs": states[JobState.SUCCEEDED],
            "failed_jobs": states[JobState.FAILED],
        }
        _raise_counters(tx, run_id, changes)
        _note_planned(tx, run_id, ended, planning.get(ended[0].claim.source, frozenset()))
        end_if_done(tx, run_id)
        added += new
    return added


def end_if_done(tx: Transaction, run_id: int) -> bool:
    """Whether this transaction is the one that ended the run; then it also writes the event."""
    run = collection_runs.c
    ended = tx.execute(
        update(collection_runs)
        .where(
            run.id == run_id,
            run.status.in_(OPEN_RUNS),
            run.succeeded_jobs + run.failed_jobs + run.canceled_jobs == run.total_jobs,
        )
        .values(status=RunState.FINALIZING)
    )
    if ended.rowcount == 1:
        outbox.add(tx, Event(RUN_ENDED, key=f"run:{run_id}", payload={"run_id": run_id}))
    return ended.rowcount == 1


def complete(tx: Transaction, run_id: int) -> bool:
    """The run is over, its statistics are there; the user may have another one."""
    done = tx.execute(
        update(collection_runs)
        .where(collection_runs.c.id == run_id, collection_runs.c.status.in_(sources_of(RUN_MOVES, RunState.COMPLETED)))
        .values(status=RunState.COMPLETED, completed_at=tx.now, active_key=None)
    )
    return done.rowcount == 1


def cancel(tx: Transaction, run_id: int) -> list[int] | None:
    """End a run at once: nothing of it is begun any more. The jobs that the gate should forget; None if it was over."""
    _lock(tx, run_id)
    if get(tx, run_id).status not in OPEN_RUNS:
        return None
    waiting = select(page_jobs.c.id).where(page_jobs.c.run_id == run_id, page_jobs.c.status.in_(UNFINISHED_JOBS))
    ids = [row.id for row in tx.execute(waiting.order_by(page_jobs.c.id))]
    canceled = tx.execute(
        update(page_jobs)
        .where(page_jobs.c.run_id == run_id, page_jobs.c.status.in_(sources_of(JOB_MOVES, JobState.CANCELED)))
        .values(status=JobState.CANCELED, completed_at=tx.now)
    )
    tx.execute(
        update(collection_runs)
        .where(collection_runs.c.id == run_id)
        .values(
            status=RunState.CANCELED,
            completed_at=tx.now,
            active_key=None,
            canceled_jobs=collection_runs.c.canceled_jobs + canceled.rowcount,
        )
    )
    return ids


def retry_failed(tx: Transaction, run_id: int) -> list[StoredJob]:
    """Let the failed jobs of a run be done again, from their first attempt."""
    _lock(tx, run_id)
    run = get(tx, run_id)
    failed = select(page_jobs).where(page_jobs.c.run_id == run_id, page_jobs.c.status == JobState.FAILED)
    jobs = [
        StoredJob(row.id, run_id, run.pool, msgspec.convert(row.spec, JobSpec))
        for row in tx.execute(failed.order_by(page_jobs.c.id))
    ]
    if not jobs:
        return []
    tx.execute(
        update(page_jobs)
        .where(page_jobs.c.run_id == run_id, page_jobs.c.status == JobState.FAILED)
        .values(status=JobState.ENQUEUED, attempt_count=0, completed_at=None)
    )
    tx.execute(
        update(collection_runs)
        .where(collection_runs.c.id == run_id)
        .values(
            status=RunState.RUNNING,
            failed_jobs=collection_runs.c.failed_jobs - len(jobs),
            active_key=f"{run.source}:{run.user_id}",
            completed_at=None,
        )
    )
    return jobs


def get(tx: Transaction, run_id: int) -> Run:
    """One run; raise `NotFound` where there is none."""
    row = tx.execute(select(collection_runs).where(collection_runs.c.id == run_id)).one_or_none()
    if row is None:
        raise NotFound("run", run_id)
    return _run(row)


def active(tx: Transaction) -> list[Run]:
    """The runs that are not over."""
    return [_run(row) for row in tx.execute(select(collection_runs).where(collection_runs.c.status.in_(ACTIVE_RUNS)))]


def _run(row: Any) -> Run:
    names = ("id", "source", "user_id", "pool", "total_jobs", "succeeded_jobs", "failed_jobs", "canceled_jobs")
    return Run(
        login=row.github_login,
        status=RunState(row.status),
        last_error=row.last_error,
        **{name: getattr(row, name) for name in names},
    )


def _lock(tx: Transaction, run_id: int) -> None:
    """One transaction at a time may move a run's counters; the next sees what it wrote."""
    tx.execute(select(collection_runs.c.id).where(collection_runs.c.id == run_id).with_for_update())


def _raise_counters(tx: Transaction, run_id: int, changes: Mapping[str, int]) -> None:
    raised = {name: collection_runs.c[name] + by for name, by in changes.items() if by}
    if raised:
        tx.execute(update(collection_runs).where(collection_runs.c.id == run_id).values(raised))


def _note_planned(tx: Transaction, run_id: int, ended: Sequence[Ending], kinds: frozenset[str]) -> None:
    """A run is planned when no job of a planning kind is left."""
    if not any(ending.claim.job.spec.kind in kinds for ending in ended):
        return
    left = select(func.count()).where(
        page_jobs.c.run_id == run_id, page_jobs.c.job_type.in_(kinds), page_jobs.c.status.in_(UNFINISHED_JOBS)
    )
    if tx.execute(left).scalar_one() == 0:
        run = collection_runs.c
        tx.execute(
            update(collection_runs)
            .where(run.id == run_id, run.status == RunState.PLANNING)
            .values(status=RunState.RUNNING, started_at=func.coalesce(run.started_at, tx.now))
        )
