"""The execution history of jobs: one row for each claim, for sources that ask for it.

A row is written by the transaction that claims the job and ended by the one that ends it. A worker that died leaves its
row open; the next claim of the job ends it as lost.
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
from tidegate.engine.tables import job_executions, page_jobs
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement

_c = job_executions.c


class ExecutionOutcome(StrEnum):
    """The result of an execution."""

    SUCCEEDED = "succeeded"
    UNAVAILABLE = "unavailable"  # the upstream shows it to no credential
    FAILED = "failed"  # the job is over
    RETRIED = "retried"  # the job is tried again, and an attempt was spent
    POSTPONED = "postponed"  # the job is tried again, and no attempt was spent
    CANCELED = "canceled"  # with its run, while it was under way
    LOST = "lost"  # its worker died


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job, as its row has it."""

    job_id: int
    fence: int
    """The fencing token of the claim; they only grow."""
    credential: str
    """The credential that made the call, or was to make it."""
    started_at: datetime
    ended_at: datetime | None
    """None while it runs, and after its worker died until the job is claimed again."""
    outcome: str | None
    reason: str | None


def record(
    tx: Transaction,
    results: Sequence[JobResult],
    claimed: Iterable[Claim],
    callers: Mapping[int, str],
    sources: Collection[str],
) -> None:
    """End the executions of ended jobs, and begin those of claimed ones, for the given `sources`."""
    ended = [_ended(ending) for ending in results if ending.claim.source in sources]
    if ended:
        _END.run(tx, ended=ended, now=tx.now)
    begun = [claim for claim in claimed if claim.source in sources]
    if not begun:
        return
    again = [claim.job.id for claim in begun if claim.fence > 1]
    if again:
        _LOSE.run(tx, ids=again, now=tx.now)
    rows = [(claim.job.id, claim.fence, callers.get(claim.job.id, "")) for claim in begun]
    _BEGIN.run(tx, begun=rows, now=tx.now)


def abandon_run(tx: Transaction, run_id: int, outcome: ExecutionOutcome, reason: str | None = None) -> None:
    """End the open executions of a run without a result. To be called while its jobs are still RUNNING."""
    running = select(page_jobs.c.id).where(page_jobs.c.run_id == run_id, page_jobs.c.status == JobState.RUNNING)
    ended = update(job_executions).where(_c.job_id.in_(running), _c.ended_at.is_(None))
    tx.execute(ended.values(ended_at=tx.now, outcome=outcome, reason=reason))


def of_job(tx: Transaction, job_id: int) -> list[Execution]:
    """Return the executions of a job, in order."""
    return of_jobs(tx, [job_id])[job_id]


def of_jobs(tx: Transaction, job_ids: Sequence[int]) -> dict[int, list[Execution]]:
    """Return the executions of these jobs by job, in order; a job that was never claimed has none."""
    rows = tx.execute(select(job_executions).where(_c.job_id.in_(sorted(set(job_ids)))).order_by(_c.job_id, _c.fence))
    found: dict[int, list[Execution]] = {job_id: [] for job_id in job_ids}
    for row in rows:
        found[row.job_id].append(msgspec.convert(row, Execution, from_attributes=True))
    return found


def _ended(ending: JobResult) -> tuple[Any, ...]:
    reason = fit_to_keep(ending.reason, most=LONGEST_REASON) if ending.reason else None
    return (ending.claim.job.id, ending.claim.fence, outcome_of(ending).value, reason or None)


def outcome_of(ending: JobResult) -> ExecutionOutcome:
    """Return the outcome of the execution that ended with this result."""
    if ending.state is JobState.READY:
        return ExecutionOutcome.RETRIED if ending.is_attempt else ExecutionOutcome.POSTPONED
    return ExecutionOutcome(ending.state.value)


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
_TABLE = ":ended(job number, claim_no number, came text, why text)"
_SAME = "job_id = ended.job AND fence = ended.claim_no"
_FROM_ENDED = f"""
UPDATE job_executions SET ended_at = :now, outcome = ended.came, reason = ended.why FROM {_TABLE} WHERE {_SAME}"""  # noqa: S608
_END = Statement(
    {
        "sqlite": _FROM_ENDED,
        "postgresql": _FROM_ENDED,
        "mysql": f"""
UPDATE {_TABLE} STRAIGHT_JOIN job_executions FORCE INDEX (PRIMARY) ON {_SAME}
SET ended_at = :now, outcome = ended.came, reason = ended.why""",  # noqa: S608
    }
)
_LOSE = Statement(
    f"""
UPDATE job_executions SET ended_at = :now, outcome = '{ExecutionOutcome.LOST}'
WHERE job_id IN :ids[] AND ended_at IS NULL"""  # noqa: S608
)
