"""What an operator wants to know of runs."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import select

from tidegate.collect.lifecycle import JobState
from tidegate.collect.tables import page_jobs
from tidegate.database import Transaction


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed, and why."""

    run_id: int
    job_id: int
    kind: str
    resource: str
    reason: str


def failures_of(tx: Transaction, run_ids: Sequence[int], limit: int = 100) -> list[Failure]:
    """The first failed jobs of these runs."""
    job = page_jobs.c
    failed = select(job.run_id, job.id, job.job_type, job.resource_key, job.last_error).where(
        job.run_id.in_(run_ids), job.status == JobState.FAILED
    )
    return [
        Failure(run_id=row[0], job_id=row[1], kind=row[2], resource=row[3], reason=row[4] or "")
        for row in tx.execute(failed.order_by(job.id).limit(limit))
    ]
