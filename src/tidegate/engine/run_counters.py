"""The effect of ended jobs on their runs: counters, the end of planning, and the end of a run.

The rows of the runs are locked after those of the jobs, in the order of their ids: a transaction that waits for a run
holds no job that the owner of that lock could need.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from sqlalchemy import exists, update

from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine import claims
from tidegate.engine.job_store import LONGEST_REASON, JobResult, StoredJob, add_jobs
from tidegate.engine.lifecycle import OPEN_RUNS, JobState, RunState
from tidegate.engine.metrics import COLLECT_ITEMS_SKIPPED
from tidegate.engine.source import JobSpec
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.sql.statements import Statement

RUN_ENDED = "collection.run_ended"
"""The kind of the event that a run has no unfinished job, followed by the name of its source: see `run_ended`."""
Planning = Mapping[str, frozenset[str]]
"""Each source's kinds of jobs that plan."""
_LEADS_ON = frozenset({JobState.SUCCEEDED, JobState.FAILED})


def run_ended(source: str) -> str:
    """Return the kind of the event that a run of this source ended: only processes that know the source handle it."""
    return f"{RUN_ENDED}.{source}"


def ended_key(run_id: int) -> str:
    """Return the key of the event that a run ended."""
    return f"run:{run_id}"


class _Change:
    """The changes of one run's counters."""

    def __init__(self) -> None:
        self.total = self.succeeded = self.failed = 0
        self.calls = self.unchanged_calls = self.documents = self.skipped = 0
        self.last_error: str | None = None

    def called(self, ending: JobResult) -> None:
        """Count the calls, whatever their result."""
        self.calls += ending.calls
        self.unchanged_calls += ending.unchanged_calls

    def ended(self, ending: JobResult) -> None:
        self.called(ending)
        self.documents += len(ending.documents)
        self.skipped += ending.skipped
        if ending.state in (JobState.SUCCEEDED, JobState.UNAVAILABLE):  # no work is left in either case
            self.succeeded += 1
        elif ending.state is JobState.FAILED:
            self.failed += 1
            why = explain(ending.claim.job.spec.kind, ending.claim.job.spec.resource, ending.reason)
            self.last_error = fit_to_keep(why, most=LONGEST_REASON)

    def row(self, run_id: int) -> tuple[int | str | None, ...]:
        jobs = (self.total, self.succeeded, self.failed)
        return (run_id, *jobs, self.calls, self.unchanged_calls, self.documents, self.skipped, self.last_error)


def explain(kind: str, resource: str, reason: str | None) -> str:
    """Return why a job failed, as its run shows it."""
    return f"{kind} of {resource}: {reason or 'no reason was given'}"


def update_runs(
    tx: Transaction,
    results: Sequence[JobResult],
    planning: Planning,
    *,
    max_attempts: int,
    late: Sequence[JobResult] = (),
) -> list[StoredJob]:
    """Insert the follow-up jobs of ended ones, update their runs' counters, and end runs without unfinished jobs.

    Returns the jobs to be enqueued: new ones that wait for no other run, and those that waited for one of these. Of
    results that came too `late` only the calls count.
    """
    changes: defaultdict[int, _Change] = defaultdict(_Change)
    for ending in results:
        changes[ending.claim.job.run_id].ended(ending)
        if ending.skipped:
            tx.after_commit(partial(_count_skipped, ending))
    for ending in late:
        changes[ending.claim.job.run_id].called(ending)
    if not changes:
        return []
    run_ids = sorted(changes)
    found = [(one.claim.job.run_id, spec) for one in results for spec in _found_by(one)]
    shared = {
        (one.source, one.claim.job.spec.resource): one.claim.job.run_id
        for one in results
        if one.claim.job.spec.owner and one.state is not JobState.READY
    }
    if found or shared or tx.dialect != "postgresql":  # otherwise `_add` locks them
        lock_runs(tx, run_ids)
    added = add_jobs(tx, found, max_attempts=max_attempts)
    for job in added:
        changes[job.run_id].total += 1
    sources = {one.claim.job.run_id: one.source for one in results}
    # Claims are locked last, after jobs and runs.
    offers = claims.claim_resources(tx, added, sources, ended=shared)
    # After the insertion of follow-ups, because a run that got new jobs is not done.
    done = _add(tx, changes)
    _note_planned(tx, results, planning)
    _end(tx, done)
    return offers


def _found_by(ending: JobResult) -> Sequence[JobSpec]:
    """Return the jobs that this end starts: follow-ups of its answer, and successors that waited for it."""
    if ending.state not in _LEADS_ON or not ending.claim.job.spec.followed_by:
        return ending.follow_ups
    return [*ending.follow_ups, *ending.claim.job.spec.successors]


def _count_skipped(ending: JobResult) -> None:
    COLLECT_ITEMS_SKIPPED.labels(ending.claim.source, ending.claim.job.spec.kind).inc(ending.skipped)


def _add(tx: Transaction, changes: Mapping[int, _Change]) -> dict[int, str]:
    """Add the changes to the counters of their runs; return the open runs without unfinished jobs, with their sources.

    The runs must be locked, except on PostgreSQL, where the statement itself locks them in order: it saves round trips.
    """
    run_ids = sorted(changes)
    rows = [changes[run_id].row(run_id) for run_id in run_ids]
    if tx.dialect == "postgresql":
        return {row[0]: row[1] for row in _COUNT_AND_RETURN.rows(tx, ids=run_ids, moved=rows, now=tx.now)}
    _COUNT.run(tx, moved=rows, now=tx.now)
    return {row[0]: row[1] for row in _DONE.rows(tx, ids=run_ids)}


def _end(tx: Transaction, done: Mapping[int, str]) -> None:
    """End runs without unfinished jobs. Exactly one transaction ends a run, and writes its event."""
    if done:
        # No condition on the state is needed: the rows are locked, and `_add` found them open under that lock.
        ended = update(collection_runs).where(collection_runs.c.id.in_(done))
        tx.execute(ended.values(status=RunState.FINALIZING))
    for run_id, source in done.items():
        outbox.add(tx, Event(run_ended(source), key=ended_key(run_id), payload={"run_id": run_id}))


def lock_runs(tx: Transaction, run_ids: Sequence[int]) -> None:
    """Lock runs until the commit, so that one transaction at a time changes or deletes them. SQLite has one writer."""
    if tx.dialect != "sqlite":
        _LOCK.rows(tx, ids=run_ids)


def _note_planned(tx: Transaction, results: Iterable[JobResult], planning: Planning) -> None:
    """End the planning of runs that have no unfinished job of a planning kind."""
    by_source: defaultdict[str, set[int]] = defaultdict(set)
    for ending in results:
        if ending.claim.job.spec.kind in planning.get(ending.claim.source, ()):
            by_source[ending.claim.source].add(ending.claim.job.run_id)
    run, job = collection_runs.c, page_jobs.c
    for source, run_ids in by_source.items():
        left = exists().where(job.run_id == run.id, job.job_type.in_(planning[source]), job.end_state.is_(None))
        planned = update(collection_runs).where(run.id.in_(sorted(run_ids)), run.status == RunState.PLANNING, ~left)
        tx.execute(planned.values(status=RunState.RUNNING))


# On PostgreSQL not FOR UPDATE: what checks a foreign key to a run need not wait.
_LOCK = Statement(
    {
        "postgresql": "SELECT id FROM collection_runs WHERE id IN :ids[] ORDER BY id FOR NO KEY UPDATE",
        "mysql": "SELECT id FROM collection_runs FORCE INDEX (PRIMARY) WHERE id IN :ids[] ORDER BY id FOR UPDATE",
    }
)
_OPEN = ", ".join(f"'{state}'" for state in OPEN_RUNS)
_DONE = Statement(
    f"""
SELECT id, source FROM collection_runs
WHERE id IN :ids[] AND status IN ({_OPEN}) AND succeeded_jobs + failed_jobs + canceled_jobs = total_jobs""",  # noqa: S608
    returns=("id", "source"),
)
_MOVED = """:moved(
  run_id number, total number, succeeded number, failed number,
  called number, unchanged number, brought number, unread number, error text
)"""
_CHANGES = """
SET total_jobs = total_jobs + moved.total,
    succeeded_jobs = succeeded_jobs + moved.succeeded,
    failed_jobs = failed_jobs + moved.failed,
    calls = calls + moved.called,
    unchanged_calls = unchanged_calls + moved.unchanged,
    documents = documents + moved.brought,
    skipped_items = skipped_items + moved.unread,
    last_error = coalesce(moved.error, last_error),
    started_at = coalesce(started_at, :now)"""
_COUNT = Statement(
    {
        "sqlite": f"UPDATE collection_runs {_CHANGES} FROM {_MOVED} WHERE id = moved.run_id",
        # In this order: in a small table the server would read, and lock, all runs.
        "mysql": f"UPDATE {_MOVED} STRAIGHT_JOIN collection_runs FORCE INDEX (PRIMARY) ON id = moved.run_id {_CHANGES}",
    }
)
_COUNT_AND_RETURN = Statement(
    {
        "postgresql": f"""
WITH locked AS (
  SELECT id AS locked_id FROM collection_runs WHERE id IN :ids[] ORDER BY id FOR NO KEY UPDATE
), counted AS (
  UPDATE collection_runs {_CHANGES} FROM {_MOVED}, locked WHERE id = moved.run_id AND locked_id = id
  RETURNING id, source, status, succeeded_jobs + failed_jobs + canceled_jobs = total_jobs AS is_done
)
SELECT id, source FROM counted WHERE is_done AND status IN ({_OPEN})"""  # noqa: S608
    },
    returns=("id", "source"),
)
