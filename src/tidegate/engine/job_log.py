"""Log lines for committed results of jobs, and for runs that started, were resumed or ended.

Successes have the level `debug`; retries, failures and runs have `info`. If a level is off, nothing is formatted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.core.telemetry.logs import get_logger, is_enabled
from tidegate.engine.job_store import JobResult
from tidegate.engine.lifecycle import JobState, RunState

if TYPE_CHECKING:
    from datetime import datetime

    from tidegate.engine.runs import NewRun, Run

log = get_logger(__name__)


def timed(finished: JobResult, took_s: float) -> JobResult:
    """Return the result with its duration, if a log line will show it."""
    is_success = finished.state is JobState.SUCCEEDED
    if not is_enabled("debug" if is_success else "info"):
        return finished
    return msgspec.structs.replace(finished, duration_ms=round(took_s * 1000, 1))


def log_jobs(finished: Sequence[JobResult]) -> None:
    """Log one line for each committed result, if its level is enabled."""
    if not is_enabled("info"):
        return
    tells_all = is_enabled("debug")
    for one in finished:
        if one.state is JobState.SUCCEEDED:
            if tells_all:
                log.debug("job.succeeded", **_job_fields(one))
        elif one.state is JobState.FAILED:
            log.info("job.failed", **_job_fields(one), reason=one.reason)
        elif one.state is JobState.UNAVAILABLE:
            log.info("job.withheld", **_job_fields(one), reason=one.reason)
        elif one.is_attempt:
            log.info("job.retried", **_job_fields(one), reason=one.reason, not_before=_iso_time(one.not_before))
        elif tells_all:
            log.debug("job.deferred", **_job_fields(one), reason=one.reason, not_before=_iso_time(one.not_before))


def log_started(run_id: int, beginning: "NewRun") -> None:
    """Log that a run began."""
    log.info(
        "run.started",
        run_id=run_id,
        source=beginning.source,
        subject=beginning.subject.login,
        pool=beginning.pool,
        triggered_by=beginning.triggered_by,
        jobs=len(beginning.specs),
    )


def log_ended(run: "Run") -> None:
    """Log how a run ended."""
    if run.status is RunState.COMPLETED:
        log.info("run.completed", **_run_fields(run))
    elif run.status is RunState.CANCELED:
        log.info("run.canceled", **_run_fields(run))
    else:
        log.info("run.failed", **_run_fields(run), reason=run.last_error)


def log_resumed(run: "Run", jobs: int) -> None:
    """Log that failed jobs of a run are retried; `run` is its state before."""
    log.info("run.resumed", run_id=run.id, source=run.source, subject=run.login, status=run.status.value, jobs=jobs)


def _job_fields(one: JobResult) -> dict[str, Any]:
    claim = one.claim
    return {
        "run_id": claim.job.run_id,
        "job_id": claim.job.id,
        "source": claim.source,
        "kind": claim.job.spec.kind,
        "resource": claim.job.spec.resource,
        "page": claim.job.spec.page,
        "status": one.status,
        "attempt": claim.attempt,
        "duration_ms": one.duration_ms,
    }


def _run_fields(run: "Run") -> dict[str, Any]:
    began, ended = run.started_at or run.created_at, run.completed_at
    return {
        "run_id": run.id,
        "source": run.source,
        "subject": run.login,
        "status": run.status.value,
        "jobs": run.total_jobs,
        "failed_jobs": run.failed_jobs,
        "calls": run.calls,
        "documents": run.documents,
        "duration_ms": None if ended is None else round((ended - began).total_seconds() * 1000),
    }


def _iso_time(moment: "datetime | None") -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")
