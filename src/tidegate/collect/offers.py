"""How a job of SQL looks to the gate."""

from collections.abc import Iterable
from datetime import datetime

from tidegate.collect.ledger import StoredJob
from tidegate.flow.gate import Job
from tidegate.kernel.clock import milliseconds


def to_gate_jobs(jobs: Iterable[StoredJob], *, now: datetime) -> list[Job]:
    """Offers for `jobs`. A job's name is its number in SQL, so that offering it again changes nothing.

    What wants no credential of its own goes to the one that has the ETag, for which an unchanged list costs nothing.
    """
    return [
        Job(
            job=str(job.id),
            pool=job.pool,
            run=str(job.run_id),
            bucket=job.spec.bucket,
            priority=job.spec.priority,
            cost=job.spec.cost,
            affinity=job.spec.affinity or job.holder or "",
            delay_ms=0 if job.not_before is None else max(0, milliseconds(job.not_before - now)),
        )
        for job in jobs
    ]
