"""Runs whose pool has nobody left to make their calls: they fail with the reason, instead of waiting for ever."""

from sqlalchemy import select, update

from tidegate.core.arguments import require_name
from tidegate.core.transitions import sources_of
from tidegate.engine import claims, runs
from tidegate.engine.executions import ExecutionOutcome, abandon_run
from tidegate.engine.lifecycle import JOB_MOVES, OPEN_RUNS, RUN_MOVES, UNFINISHED_JOBS, JobState, RunState
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.sql import Transaction


def pools_in_use(tx: Transaction) -> list[str]:
    """The pools of the runs that have jobs to do."""
    found = select(collection_runs.c.pool).where(collection_runs.c.status.in_(OPEN_RUNS)).distinct()
    return [row.pool for row in tx.execute(found)]


def fail(tx: Transaction, pool: str, reason: str) -> dict[int, list[int]]:
    """Fail the open runs of a pool with all their unfinished jobs, those in workers' hands too.

    Results of the latter are rejected, so they add no follow-ups that no credential could serve. Returns the jobs by
    run that the gate has to forget and to be told of anew: also jobs of other runs that waited for one of these.
    Retrying a run continues it.
    """
    require_name("pool", pool)
    run = collection_runs.c
    # Locked like everybody does who moves counters: what was committed before is seen, and nothing comes between.
    found = select(run.id).where(run.pool == pool, run.status.in_(OPEN_RUNS)).order_by(run.id).with_for_update()
    failed = {row.id: _fail_run(tx, row.id, reason) for row in tx.execute(found).all()}
    for job in claims.release(tx, failed):
        failed.setdefault(job.run_id, []).append(job.id)
    return failed


def _fail_run(tx: Transaction, run_id: int, reason: str) -> list[int]:
    run, job = collection_runs.c, page_jobs.c
    unfinished = select(job.id).where(job.run_id == run_id, job.status.in_(UNFINISHED_JOBS)).order_by(job.id)
    ids = [row.id for row in tx.execute(unfinished.with_for_update())]
    abandon_run(tx, run_id, ExecutionOutcome.FAILED, reason)
    tx.execute(
        update(page_jobs)
        .where(job.run_id == run_id, job.status.in_(sources_of(JOB_MOVES, JobState.FAILED)))
        .values(status=JobState.FAILED, completed_at=tx.now, last_error=reason)
    )
    tx.execute(
        update(collection_runs)
        .where(run.id == run_id, run.status.in_(sources_of(RUN_MOVES, RunState.FAILED)))
        .values(
            status=RunState.FAILED,
            completed_at=tx.now,
            active_key=None,
            failed_jobs=run.failed_jobs + len(ids),
            last_error=reason,
        )
    )
    runs.tell_end(tx, run_id)
    return ids
