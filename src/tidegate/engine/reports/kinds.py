"""Reports by kind of job: failures, processing times and retries.

Each report reads active and recently ended runs, newest first, up to a limit of jobs. Its duration therefore does not
grow with the history. The result states which runs and jobs it is based on.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import select

from tidegate.core.arguments import require_positive
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement

A_DAY = timedelta(days=1)
MOST_JOBS = 10_000
_MOST_RUNS = 5_000


class ReportBasis(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a report is based on: those of active runs, and of runs that ended at `since` or later."""

    since: datetime
    runs: int
    jobs: int
    is_whole: bool
    """False if there were more jobs than the limit: then the active runs and the runs that ended last are included."""


class KindFailures(msgspec.Struct, frozen=True, kw_only=True):
    """How often jobs of one kind failed."""

    source: str
    kind: str
    jobs: int
    """Jobs that ended and were not canceled."""
    failed: int
    share: float
    """Share of failed jobs, from 0 to 1."""
    runs: int
    """Runs in which they failed."""
    last_job: int
    """The newest failed job."""
    last_error: str
    """The error of that job."""


class FailingReport(msgspec.Struct, frozen=True, kw_only=True):
    """Failures by kind, most failures first."""

    looked_at: ReportBasis
    kinds: list[KindFailures]


class KindTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Processing times of one kind in seconds, from the last claim of a job to its end."""

    source: str
    kind: str
    jobs: int
    p50_s: float
    """Median."""
    p95_s: float
    max_s: float


class TimesReport(msgspec.Struct, frozen=True, kw_only=True):
    """Processing times by kind, slowest first."""

    looked_at: ReportBasis
    kinds: list[KindTimes]


class KindRetries(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of the jobs of one kind."""

    source: str
    kind: str
    jobs: int
    """Jobs with at least one attempt."""
    retried: int
    """Jobs with more than one attempt."""
    retries: int
    """Attempts after the first one, of all jobs."""
    most: int
    """Maximum number of attempts of one job."""


class RetriesReport(msgspec.Struct, frozen=True, kw_only=True):
    """Retries by kind, most retries first."""

    looked_at: ReportBasis
    kinds: list[KindRetries]


def failing_kinds(tx: Transaction, since: datetime, limit: int = 20, most_jobs: int = MOST_JOBS) -> FailingReport:
    """Find the kinds with the most failed jobs, with the number of failures and the last error of each."""
    require_positive("limit", limit)
    looked_at, rows = _run_query(tx, _FAILING, since, most_jobs)
    worst = sorted((row for row in rows if row[3]), key=lambda row: (-row[3], row[0], row[1]))[:limit]
    reasons = _last_errors(tx, [row[5] for row in worst])
    kinds = [
        KindFailures(
            source=source,
            kind=kind,
            jobs=jobs,
            failed=int(failed),
            share=round(int(failed) / jobs, 4),
            runs=runs,
            last_job=last,
            last_error=reasons.get(last, ""),
        )
        for source, kind, jobs, failed, runs, last in worst
    ]
    return FailingReport(looked_at=looked_at, kinds=kinds)


def processing_times(tx: Transaction, since: datetime, limit: int = 20, most_jobs: int = MOST_JOBS) -> TimesReport:
    """Compute the processing times of jobs by kind."""
    require_positive("limit", limit)
    looked_at, rows = _run_query(tx, _TIMES, since, most_jobs)
    kinds = [
        KindTimes(source=row[0], kind=row[1], jobs=row[2], p50_s=_s(row[3]), p95_s=_s(row[4]), max_s=_s(row[5]))
        for row in rows
    ]
    kinds.sort(key=lambda one: (-one.p95_s, one.source, one.kind))
    return TimesReport(looked_at=looked_at, kinds=kinds[:limit])


def retry_counts(tx: Transaction, since: datetime, limit: int = 20, most_jobs: int = MOST_JOBS) -> RetriesReport:
    """Count the retries of jobs by kind."""
    require_positive("limit", limit)
    looked_at, rows = _run_query(tx, _RETRIES, since, most_jobs)
    kinds = [
        KindRetries(source=row[0], kind=row[1], jobs=row[2], retried=int(row[3]), retries=int(row[4]), most=row[5])
        for row in rows
    ]
    kinds.sort(key=lambda one: (-one.retries, one.source, one.kind))
    return RetriesReport(looked_at=looked_at, kinds=kinds[:limit])


def _run_query(tx: Transaction, query: Statement, since: datetime, most_jobs: int) -> tuple[ReportBasis, Sequence[Any]]:
    """Run a query on the jobs of active runs, and of runs that ended at `since` or later."""
    require_positive("most_jobs", most_jobs)
    runs, jobs, is_whole = _select_runs(tx, since, most_jobs)
    rows = query.rows(tx, ids=runs, most=most_jobs) if runs else []
    return ReportBasis(since=since, runs=len(runs), jobs=min(jobs, most_jobs), is_whole=is_whole), rows


def _select_runs(tx: Transaction, since: datetime, most_jobs: int) -> tuple[list[int], int, bool]:
    """Select active runs, then those that ended since `since`, newest first, until they have `most_jobs` ended jobs.

    Returns their ids, the number of their ended jobs, and whether this limit and `_MOST_RUNS` left nothing out.
    """
    run, chosen, jobs = collection_runs.c, list[int](), 0
    ended = (run.succeeded_jobs + run.failed_jobs).label("ended")
    active = select(run.id, ended).where(run.status.in_(ACTIVE_RUNS)).order_by(run.id.desc())
    over = select(run.id, ended).where(run.completed_at >= since).order_by(run.completed_at.desc())
    for some in (active, over):
        for number, count in tx.execute(some.limit(_MOST_RUNS)):
            if jobs >= most_jobs or len(chosen) >= _MOST_RUNS:
                return chosen, jobs, False
            chosen.append(number)
            jobs += count
    return chosen, jobs, jobs <= most_jobs and len(chosen) < _MOST_RUNS


def _last_errors(tx: Transaction, job_ids: Sequence[int]) -> dict[int, str]:
    rows = tx.execute(select(page_jobs.c.id, page_jobs.c.last_error).where(page_jobs.c.id.in_(job_ids)))
    return {row[0]: row[1] or "" for row in rows}


def _s(seconds: Any) -> float:
    """Round to milliseconds, the precision that all databases support."""
    return round(max(0.0, float(seconds)), 3)


def _jobs_subquery(columns: str, condition: str) -> str:
    """A subquery with at most `:most` jobs."""
    return f"""
(SELECT r.source, j.job_type AS kind, {columns}
 FROM page_jobs j JOIN collection_runs r ON r.id = j.run_id
 WHERE j.run_id IN :ids[] AND {condition}
 LIMIT :most) AS looked"""  # noqa: S608


_ENDED = "j.end_state IN ('succeeded', 'unavailable', 'failed')"
_BEGUN = "j.status IN ('ready', 'running', 'succeeded', 'unavailable', 'failed') AND j.attempt_count > 0"
_FAILING = Statement(
    f"""
SELECT source, kind, COUNT(*) AS jobs,
       SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END) AS failed,
       COUNT(DISTINCT CASE WHEN status = 'failed' THEN run_id END) AS runs,
       MAX(CASE WHEN status = 'failed' THEN id END) AS last_job
FROM {_jobs_subquery("j.status, j.run_id, j.id", _ENDED)}
GROUP BY source, kind""",  # noqa: S608
    returns=("source", "kind", "jobs", "failed", "runs", "last_job"),
)
_RETRIES = Statement(
    f"""
SELECT source, kind, COUNT(*) AS jobs,
       SUM(CASE WHEN tries > 1 THEN 1 ELSE 0 END) AS retried,
       SUM(tries - 1) AS retries,
       MAX(tries) AS most_tries
FROM {_jobs_subquery("j.attempt_count AS tries", _BEGUN)}
GROUP BY source, kind""",  # noqa: S608
    returns=("source", "kind", "jobs", "retried", "retries", "most_tries"),
)


def _times(seconds: str) -> str:
    looked = _jobs_subquery(
        f"{seconds} AS seconds", f"{_ENDED} AND j.started_at IS NOT NULL AND j.completed_at IS NOT NULL"
    )
    return f"""
SELECT source, kind, COUNT(*) AS jobs,
       MIN(CASE WHEN place >= 0.5 THEN seconds END) AS p50,
       MIN(CASE WHEN place >= 0.95 THEN seconds END) AS p95,
       MAX(seconds) AS longest
FROM (SELECT source, kind, seconds, CUME_DIST() OVER (PARTITION BY source, kind ORDER BY seconds) AS place
      FROM {looked}) AS placed
GROUP BY source, kind"""  # noqa: S608


_TIMES = Statement(
    {
        "sqlite": _times("(julianday(j.completed_at) - julianday(j.started_at)) * 86400.0"),
        "postgresql": _times("EXTRACT(EPOCH FROM j.completed_at - j.started_at)"),
        "mysql": _times("TIMESTAMPDIFF(MICROSECOND, j.started_at, j.completed_at) / 1000000.0"),
    },
    returns=("source", "kind", "jobs", "p50", "p95", "longest"),
)
