"""Retention rules for runs, cursors and firings."""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import delete, exists, func, or_, select

from tidegate.engine import claims, parked_answer_store
from tidegate.engine.job_store import in_parts, lock_jobs
from tidegate.engine.lifecycle import ACTIVE_RUNS, UNFINISHED_JOBS, JobState, RunState
from tidegate.engine.run_counters import lock_runs
from tidegate.engine.schedules.firings import schedule_firings
from tidegate.engine.tables import (
    allowance_notes,
    collection_cursors,
    collection_runs,
    job_executions,
    page_jobs,
    parked_answers,
)
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database, Transaction

ENDED_RUNS = tuple(sorted(state for state in RunState if state not in ACTIVE_RUNS))
ENDED_JOBS = tuple(sorted(state for state in JobState if state not in UNFINISHED_JOBS))
_RUNS_AT_ONCE = 100
_run, _job, _cursor, _note = collection_runs.c, page_jobs.c, collection_cursors.c, allowance_notes.c


class RunRule:
    """Deletes old ended runs: first their jobs with executions and parked answers, then the runs.

    A run is locked while its jobs are deleted, as by every transaction that ends or retries it. A run that is retried
    between two batches completes with the failed jobs that are left, because its counters are stored in its row.
    """

    name = "collection_runs"
    tables: Collection[str] = (
        *("collection_runs", "page_jobs", "job_executions", "parked_answers", "resource_claims"),
    )

    def __init__(self, database: Database, keep: timedelta) -> None:
        self._database, self._keep = database, keep

    async def prune(self, most: int) -> int:
        """Delete up to `most` jobs of old runs, and the runs without jobs; return the number of deleted rows."""
        before = self._database.clock.now() - self._keep
        found = await self._database.read(_ended_before, before)
        return await self._database.transaction(delete_ended, found, before, most) if found else 0


def _ended_before(tx: Transaction, before: datetime) -> list[int]:
    old = select(_run.id).where(_run.status.in_(ENDED_RUNS), _run.completed_at < before)
    return list(tx.execute(old.order_by(_run.completed_at, _run.id).limit(_RUNS_AT_ONCE)).scalars())


def delete_ended(tx: Transaction, found: list[int], before: datetime, most: int) -> int:
    """Delete up to `most` jobs of those of these runs that ended before `before`, and the runs without jobs."""
    is_over = (_run.id.in_(found), _run.status.in_(ENDED_RUNS), _run.completed_at < before)
    oldest = select(_job.id).join(collection_runs, _run.id == _job.run_id).where(*is_over).order_by(_job.id)
    locked = lock_jobs(tx, list(tx.execute(oldest.limit(most)).scalars()), ENDED_JOBS)
    lock_runs(tx, sorted(found))
    # Read again under the locks: a run that was retried meanwhile is not over.
    runs = list(tx.execute(select(_run.id).where(*is_over).order_by(_run.id)).scalars())
    jobs = 0
    for ids in in_parts(locked):
        ours = (_job.id.in_(ids), _job.run_id.in_(runs))
        # While the jobs are locked, no transaction adds an execution.
        tx.execute(delete(job_executions).where(job_executions.c.job_id.in_(select(_job.id).where(*ours))))
        jobs += tx.execute(delete(page_jobs).where(*ours)).rowcount
    empty = select(_run.id).where(_run.id.in_(runs), ~exists().where(_job.run_id == _run.id))
    # If the limit was reached, jobs are left, and the runs wait for a later batch.
    over = list(tx.execute(empty).scalars()) if jobs < most else []
    if over:
        claims.forget(tx, over)
        tx.execute(delete(collection_runs).where(_run.id.in_(over)))
    return jobs + len(over)


def rules(database: Database, *, runs: timedelta, cursors: timedelta, firings: timedelta) -> list[RetentionRule]:
    """Return the rules for all tables of the collection that grow with time."""
    asked_for = (
        select(_job.id)
        .join(collection_runs, _run.id == _job.run_id)
        .where(_run.source == _cursor.source, func.coalesce(_job.owner, _run.user_id) == _cursor.user_id)
        .where(_job.job_type == _cursor.resource_type, _job.resource_key == _cursor.resource_key)
    )
    ends = (_note.resets_at, _note.blocked_until, _note.learned_until)
    return [
        RunRule(database, runs),
        TableRule(
            database,
            collection_cursors,
            cursors,
            lambda before: [_cursor.updated_at < before],
            unused=[~asked_for.exists()],
        ),
        TableRule(database, schedule_firings, firings, lambda before: [schedule_firings.c.fired_at < before]),
        TableRule(
            database, parked_answers, parked_answer_store.KEPT_FOR, lambda before: [parked_answers.c.parked_at < before]
        ),
        TableRule(
            database,
            allowance_notes,
            timedelta(),
            lambda now: [or_(column.is_(None), column <= now) for column in ends],
        ),
    ]
