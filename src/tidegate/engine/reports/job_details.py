"""One job, with what is known of its run and of those who worked on it."""

import msgspec

from tidegate.core.errors import NotFound
from tidegate.engine import executions, job_store, runs
from tidegate.engine.executions import Execution
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import JobView, jobs_of
from tidegate.storage.sql import Transaction


class JobDetail(JobView, frozen=True, kw_only=True):
    """A job with what is known of its run, and of those who worked on it."""

    source: str
    login: str
    run_status: RunState
    executions: list[Execution]
    """Who worked on it, the first one first; empty where nobody began it, and where its source records none."""


def job_of(tx: Transaction, job_id: int) -> JobDetail:
    """One job; raise `NotFound`."""
    run_ids = job_store.runs_of(tx, [job_id])
    if not run_ids:
        raise NotFound("job", job_id)
    run, [view] = runs.get(tx, run_ids[0]), jobs_of(tx, run_ids[0], after=job_id - 1, limit=1)
    return JobDetail(
        **msgspec.structs.asdict(view),
        source=run.source,
        login=run.login,
        run_status=run.status,
        executions=executions.of_job(tx, job_id),
    )
