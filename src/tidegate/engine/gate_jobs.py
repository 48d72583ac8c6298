"""How a job of SQL looks to the gate."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from tidegate.core.clock import milliseconds
from tidegate.engine.job_store import StoredJob
from tidegate.primitives.gate import Job

Barred = Callable[[StoredJob], Sequence[str]]
"""Which credentials must not make the call of a job, as far as this process knows. Must not wait."""


def none_barred(_job: StoredJob) -> Sequence[str]:
    """Every credential of the pool may make the call."""
    return ()


def to_gate_jobs(jobs: Iterable[StoredJob], *, now: datetime, barred: Barred = none_barred) -> list[Job]:
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
            barred=tuple(barred(job)),
            delay_ms=0 if job.not_before is None else max(0, milliseconds(job.not_before - now)),
        )
        for job in jobs
    ]
