"""Runs, permits and views, made by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tidegate.engine.commands.permits import Permits
from tidegate.engine.commands.watching import View
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import KindProgress
from tidegate.engine.runs import Run

NOW = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)


def run(number: int = 1, login: str = "octocat", status: RunState = RunState.RUNNING, **counters: Any) -> Run:
    values: dict[str, Any] = {
        "total_jobs": 10,
        "succeeded_jobs": 4,
        "failed_jobs": 0,
        "canceled_jobs": 0,
        "calls": 4,
        "unchanged_calls": 0,
        "documents": 321,
        "pool": "github",
        "options": {},
        "completed_at": None,
        **counters,
    }
    return Run(
        id=number,
        source="github",
        user_id=login,
        login=login,
        status=status,
        last_error=None,
        triggered_by="manual",
        created_at=NOW - timedelta(minutes=1),
        started_at=NOW - timedelta(minutes=1),
        **values,
    )


def kind(
    number: int = 1,
    name: str = "REPO_ISSUES",
    total: int = 10,
    succeeded: int = 4,
    failed: int = 0,
    unavailable: int = 0,
) -> KindProgress:
    return KindProgress(
        run_id=number,
        kind=name,
        total=total,
        waiting=total - succeeded - unavailable - failed,
        running=0,
        retrying=0,
        succeeded=succeeded,
        unavailable=unavailable,
        failed=failed,
        canceled=0,
    )


def permits(**changes: Any) -> Permits:
    values: dict[str, Any] = {
        "credential": "token of octocat",
        "bucket": "core",
        "limit": 5_000,
        "left": 4_000,
        "in_flight": 7,
        "resets_at": NOW + timedelta(minutes=5),
        "opens_at": None,
        "reason": None,
        **changes,
    }
    return Permits(**values)


def view(*runs: Run, **changes: Any) -> View:
    values: dict[str, Any] = {"kinds": {one.id: [kind(one.id)] for one in runs}, "permits": [permits()], **changes}
    return View(at=NOW, runs=runs, **values)
