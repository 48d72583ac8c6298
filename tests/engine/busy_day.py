"""A small deployment in the middle of a day: some of everything that an operator asks about."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import insert

from tidegate.engine.lifecycle import JobState
from tidegate.engine.tables import allowance_notes, collection_runs, page_jobs, state_values
from tidegate.storage.sql import Transaction

_OVER = ("completed", "failed", "canceled")


@dataclass(frozen=True)
class Some:
    """Jobs that are alike."""

    kind: str
    status: str
    count: int = 1
    tries: int = 1
    took_s: float = 0.2
    """Each takes a tenth of this longer than the one before."""
    reason: str | None = None
    began: timedelta = timedelta(hours=1)
    """How long ago, where it has not ended."""


@dataclass(frozen=True)
class _Day:
    source: str
    user: str
    pool: str
    status: str
    ended: timedelta | None
    jobs: Sequence[Some]


_DAY = [
    _Day("github", "ada", "github", "completed", timedelta(days=3), [Some("REPO_ISSUES", "failed", 9, 5, 8)]),
    _Day(
        *("github", "mona", "github", "completed", timedelta(hours=2)),
        [
            Some("USER_BASIC", "succeeded"),
            Some("REPO_COMMITS", "succeeded", 40, took_s=0.1),
            Some("REPO_COMMITS", "succeeded", 3, tries=2, took_s=1.5),
            Some("REPO_COMMITS", "failed", 2, tries=5, took_s=10, reason="502 Bad Gateway"),
            Some("REPO_ISSUES", "unavailable", reason="451: taken down"),
        ],
    ),
    _Day(
        *("crawl", "daily", "crawl", "completed", timedelta(hours=5)),
        [
            Some("detail", "succeeded", 20, took_s=0.4),
            Some("detail", "failed", 3, tries=3, took_s=2, reason="the page has no price"),
            Some("option", "failed", tries=3, took_s=3, reason="503 Service Unavailable"),
        ],
    ),
    _Day("github", "bob", "github", "canceled", timedelta(hours=3), [Some("USER_BASIC", "canceled", 2)]),
    _Day("github", "eve", "github", "failed", timedelta(hours=4), [Some("USER_BASIC", "failed", reason="404")]),
    _Day(
        *("github", "hubot", "github", "running", None),
        [
            Some("USER_BASIC", "succeeded"),
            Some("REPO_PRS", "enqueued", 25),
            Some("REPO_PRS", "running", 2, began=timedelta(seconds=5)),
            Some("REPO_REVIEWS", "running", began=timedelta(minutes=47)),
            Some("REPO_REVIEWS", "ready", 3, tries=2),
        ],
    ),
    _Day(
        *("crawl", "hourly", "crawl", "planning", None),
        [Some("mini_shop", "enqueued", 4), Some("mini_shop", "running", began=timedelta(hours=2), tries=2)],
    ),
]


def fill(tx: Transaction) -> None:
    """Write all of it."""
    for day in _DAY:
        _write(tx, day)
    tx.execute(
        insert(allowance_notes).values(
            source="github",
            credential="mona",
            bucket="core",
            pool="github",
            blocked_until=tx.now + timedelta(minutes=20),
        )
    )
    past = {"blocked_until": tx.now - timedelta(minutes=20), "resets_at": tx.now - timedelta(minutes=1)}
    tx.execute(insert(allowance_notes).values(source="github", credential="old", bucket="core", pool="github", **past))


def _write(tx: Transaction, day: _Day) -> None:
    counts = Counter[str]()
    for some in day.jobs:
        counts[some.status] += some.count
    created = tx.now - (day.ended or timedelta(hours=3)) - timedelta(hours=1)
    values = {
        **{"source": day.source, "user_id": day.user, "login": day.user, "pool": day.pool, "options": {}},
        **{"status": day.status, "triggered_by": "manual", "created_at": created, "started_at": created},
        "active_key": None if day.status in _OVER else f"{day.source}:{day.user}",
        "completed_at": None if day.ended is None else tx.now - day.ended,
        "total_jobs": counts.total(),
        "succeeded_jobs": counts["succeeded"] + counts["unavailable"],
        "failed_jobs": counts["failed"],
        "canceled_jobs": counts["canceled"],
    }
    (run_id,) = tx.execute(insert(collection_runs).values(values)).inserted_primary_key or (0,)
    rows = [
        _job(tx, run_id, group, some, number) for group, some in enumerate(day.jobs) for number in range(some.count)
    ]
    tx.insert_many(page_jobs, rows)


def _job(tx: Transaction, run_id: int, group: int, some: Some, number: int) -> dict[str, Any]:
    is_over = some.status in ("succeeded", "unavailable", "failed")
    was_begun = is_over or some.status in ("running", "ready")
    started = tx.now - some.began - timedelta(seconds=number)
    return {
        **{"run_id": run_id, "job_type": some.kind, "resource_key": f"thing:{group}", "page_key": str(number)},
        **{
            "spec": {},
            **state_values(JobState(some.status)),
            "fence": some.tries,
            "max_attempts": 5,
            "last_error": some.reason,
        },
        "attempt_count": some.tries if was_begun else 0,
        "created_at": tx.now - timedelta(days=1),
        "started_at": started if was_begun else None,
        "completed_at": started + timedelta(seconds=some.took_s * (1 + number / 10)) if is_over else None,
        "not_before": tx.now + timedelta(minutes=1 + number) if some.status == "ready" else None,
    }
