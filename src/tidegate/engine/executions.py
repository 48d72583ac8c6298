"""The execution history of jobs: for each claim that led to a result, the request that it sent and its outcome.

A row is written by the transaction that ends the job or returns it, with the fencing token of the claim as part of its
key: one statement for each batch. A result that is rejected because its worker lost its lease has no row. For sources
that ask for it (`records_claims`) a row is also written by the transaction that claims the job; if the worker dies, the
next claim ends that row as lost.

The newest `KEPT` executions of each job are kept, and deleted with the job.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import select, update

from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.job_store import LONGEST_REASON, Claim, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.tables import in_state, job_executions, page_jobs
from tidegate.engine.upstream.call_records import CallRecord
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement

KEPT = 20
"""Executions that are kept of each job."""
_c = job_executions.c


class ExecutionOutcome(StrEnum):
    """The result of an execution."""

    SUCCEEDED = "succeeded"
    UNAVAILABLE = "unavailable"  # withheld by the upstream
    FAILED = "failed"  # the job failed permanently
    RETRIED = "retried"  # the job will be retried; an attempt was counted
    POSTPONED = "postponed"  # the job will be executed again; no attempt was counted
    CANCELED = "canceled"  # with its run, while it was running
    LOST = "lost"  # its worker died


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """The row of one execution of a job."""

    job_id: int
    fence: int
    """The fencing token of the claim. Later claims of the job have larger ones."""
    credential: str
    """The credential that made the call, or was to make it."""
    started_at: datetime
    ended_at: datetime | None
    """None while it runs, and after its worker died until the job is claimed again."""
    outcome: str | None
    reason: str | None
    call: CallRecord | None = None
    """The request that was sent; None where none was, as when the answer to an earlier one was stored."""
    next_try_at: datetime | None = None
    """When the job can be executed again; None if that is at once, or if the job has ended."""


def end(tx: Transaction, results: Sequence[JobResult]) -> None:
    """Record the executions that ended with these results, and delete those of the same jobs that are too old.

    The claims must have been checked: the transaction holds the last claim of each job (`job_store.write_endings`).
    """
    if not results:
        return
    _END.run(tx, ended=[_ended(one, tx.now) for one in results], now=tx.now)
    # Only a job that was claimed more often than `KEPT` can have rows to delete.
    if often := sorted({one.claim.job.id for one in results if one.claim.fence > KEPT}):
        _PRUNE.run(tx, ids=often)


def begin(tx: Transaction, claimed: Iterable[Claim], callers: Mapping[int, str], sources: Collection[str]) -> None:
    """Record the start of executions for jobs of `sources`, and end open executions of earlier workers as lost."""
    begun = [claim for claim in claimed if claim.source in sources]
    if not begun:
        return
    # A first claim has no earlier execution, so most batches need no update.
    again = [claim.job.id for claim in begun if claim.fence > 1]
    if again:
        _LOSE.run(tx, ids=again, now=tx.now)
    rows = [(claim.job.id, claim.fence, callers.get(claim.job.id, "")) for claim in begun]
    _BEGIN.run(tx, begun=rows, now=tx.now)


def abandon_run(tx: Transaction, run_id: int, outcome: ExecutionOutcome, reason: str | None = None) -> None:
    """End the open executions of a run without a result. To be called while its jobs are still RUNNING."""
    running = select(page_jobs.c.id).where(page_jobs.c.run_id == run_id, in_state(JobState.RUNNING))
    ended = update(job_executions).where(_c.job_id.in_(running), _c.ended_at.is_(None))
    tx.execute(ended.values(ended_at=tx.now, outcome=outcome, reason=reason))


def of_job(tx: Transaction, job_id: int) -> list[Execution]:
    """Return the executions of a job, in order."""
    return of_jobs(tx, [job_id])[job_id]


def of_jobs(tx: Transaction, job_ids: Sequence[int]) -> dict[int, list[Execution]]:
    """Return the executions of these jobs by job, in order; a job that was never claimed has none."""
    rows = tx.execute(_FOUND.where(_c.job_id.in_(sorted(set(job_ids)))).order_by(_c.job_id, _c.fence))
    found: dict[int, list[Execution]] = {job_id: [] for job_id in job_ids}
    for row in rows:
        found[row.job_id].append(msgspec.convert(row, Execution, from_attributes=True))
    return found


def _ended(ending: JobResult, now: datetime) -> tuple[Any, ...]:
    claim = ending.claim
    reason = fit_to_keep(ending.reason, most=LONGEST_REASON) if ending.reason else None
    next_try_at = ending.not_before if ending.state is JobState.READY else None
    call = None if ending.call is None else msgspec.json.encode(ending.call).decode()
    caller = ending.credential or ending.settlement.credential
    outcome = outcome_of(ending).value
    return (claim.job.id, claim.fence, caller, claim.claimed_at or now, outcome, reason or None, next_try_at, call)


def outcome_of(ending: JobResult) -> ExecutionOutcome:
    """Return the outcome of the execution that ended with this result."""
    if ending.state is JobState.READY:
        return ExecutionOutcome.RETRIED if ending.is_attempt else ExecutionOutcome.POSTPONED
    return ExecutionOutcome(ending.state.value)


_FOUND = select(
    *(_c.job_id, _c.fence, _c.credential, _c.started_at, _c.ended_at, _c.outcome, _c.reason),
    *(_c.next_try_at, _c.call_record.label("call")),
)
_GIVEN = ":begun(job_id number, fence number, credential text)"
_COLUMNS = "job_id, fence, credential, started_at"
_BEGIN = Statement(
    {
        "sqlite": f"INSERT INTO job_executions ({_COLUMNS}) SELECT job_id, fence, credential, :now FROM {_GIVEN}",  # noqa: S608
        "postgresql": f"""
INSERT INTO job_executions ({_COLUMNS}) SELECT job_id, fence, credential, :now::timestamptz FROM {_GIVEN}""",  # noqa: S608
        "mysql": f"INSERT INTO job_executions ({_COLUMNS}) SELECT job_id, fence, credential, :now FROM {_GIVEN}",  # noqa: S608
    }
)
_RESULT = ("outcome", "reason", "next_try_at", "call_record")
_ENDED = """:ended(
  job_id number, fence number, credential key, started_at moment,
  outcome key, reason text, next_try_at moment, call_record text
)"""
_INSERT = f"INSERT INTO job_executions ({_COLUMNS}, {', '.join(_RESULT)}, ended_at)"
_TAKEN = ", ".join(f"ended.{name.strip()}" for name in (*_COLUMNS.split(","), *_RESULT))
# A source that records claims has a row since `begin`. Its end completes that row, and keeps `started_at`.
_REPLACE = ", ".join(f"{name} = excluded.{name}" for name in (*_RESULT, "ended_at"))
_ON_CONFLICT = f"ON CONFLICT (job_id, fence) DO UPDATE SET {_REPLACE}"
_ON_DUPLICATE = ", ".join(f"{name} = VALUES({name})" for name in (*_RESULT, "ended_at"))
_END = Statement(
    {
        # Without a WHERE, SQLite would take ON for the beginning of a join's condition.
        "sqlite": f"{_INSERT} SELECT {_TAKEN}, :now FROM {_ENDED} WHERE true {_ON_CONFLICT}",  # noqa: S608
        "postgresql": f"{_INSERT} SELECT {_TAKEN}, :now::timestamptz FROM {_ENDED} {_ON_CONFLICT}",  # noqa: S608
        "mysql": f"{_INSERT} SELECT {_TAKEN}, :now FROM {_ENDED} ON DUPLICATE KEY UPDATE {_ON_DUPLICATE}",  # noqa: S608
    }
)
_PRUNE = Statement(
    f"""
DELETE FROM job_executions
WHERE job_id IN :ids[]
  AND fence <= (SELECT page_jobs.fence FROM page_jobs WHERE page_jobs.id = job_executions.job_id) - {KEPT}"""  # noqa: S608
)
_LOSE = Statement(
    f"""
UPDATE job_executions SET ended_at = :now, outcome = '{ExecutionOutcome.LOST}'
WHERE job_id IN :ids[] AND ended_at IS NULL"""  # noqa: S608
)
