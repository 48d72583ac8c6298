"""Who worked on a job, when, and what came of it: one row for each claim, of the sources that ask for it.

A row is written by the transaction that claims the job and ended by the one that ends it. A worker that died leaves its
row open; whoever claims the job next ends it as lost.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import select, update

from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.job_store import LONGEST_REASON, Claim, Ending
from tidegate.engine.lifecycle import JobState
from tidegate.engine.tables import job_executions, page_jobs
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement

_c = job_executions.c


class ExecutionOutcome(StrEnum):
    """What came of an execution."""

    SUCCEEDED = "succeeded"
    UNAVAILABLE = "unavailable"  # the upstream shows it to nobody
    FAILED = "failed"  # the job is over
    RETRIED = "retried"  # the job is tried again, and an attempt was spent
    POSTPONED = "postponed"  # the job is tried again, and no attempt was spent
    CANCELED = "canceled"  # with its run, while it was under way
    LOST = "lost"  # its worker died


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job, as its row has it."""

    job_id: int
    fence: int
    """Which claim of the job it was; they only grow."""
    credential: str
    """Who made the call, or was to make it."""
    started_at: datetime
    ended_at: datetime | None
    """None while it is under way, or since its worker died."""
    outcome: str | None
    reason: str | None


def record(
    tx: Transaction,
    endings: Sequence[Ending],
    claimed: Iterable[Claim],
    callers: Mapping[int, str],
    sources: Collection[str],
) -> None:
    """End the executions of jobs that ended, and begin those of claimed ones; `sources` are those that ask for it."""
    ended = [_ended(ending) for ending in endings if ending.claim.source in sources]
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
    """End what is under way of a run, though nobody brought a result; while its jobs are RUNNING yet."""
    running = select(page_jobs.c.id).where(page_jobs.c.run_id == run_id, page_jobs.c.status == JobState.RUNNING)
    ended = update(job_executions).where(_c.job_id.in_(running), _c.ended_at.is_(None))
    tx.execute(ended.values(ended_at=tx.now, outcome=outcome, reason=reason))


def of_job(tx: Transaction, job_id: int) -> list[Execution]:
    """The executions of a job, the first one first."""
    return of_jobs(tx, [job_id])[job_id]


def of_jobs(tx: Transaction, job_ids: Sequence[int]) -> dict[int, list[Execution]]:
    """The executions of these jobs by job, the first one first; a job that nobody began has none."""
    rows = tx.execute(select(job_executions).where(_c.job_id.in_(sorted(set(job_ids)))).order_by(_c.job_id, _c.fence))
    found: dict[int, list[Execution]] = {job_id: [] for job_id in job_ids}
    for row in rows:
        found[row.job_id].append(msgspec.convert(row, Execution, from_attributes=True))
    return found


def _ended(ending: Ending) -> tuple[Any, ...]:
    reason = fit_to_keep(ending.reason, most=LONGEST_REASON) if ending.reason else None
    return (ending.claim.job.id, ending.claim.fence, outcome_of(ending).value, reason or None)


def outcome_of(ending: Ending) -> ExecutionOutcome:
    """What came of the execution that ended so."""
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
UPDATE job_executions JOIN {_TABLE} ON {_SAME} SET ended_at = :now, outcome = ended.came, reason = ended.why""",  # noqa: S608
    }
)
_LOSE = Statement(
    f"""
UPDATE job_executions SET ended_at = :now, outcome = '{ExecutionOutcome.LOST}'
WHERE job_id IN :ids[] AND ended_at IS NULL"""  # noqa: S608
)
