"""One log line for each job that ended and for each run that began or ended, with the facts an operator looks for."""

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from tests.engine.conftest import POOL, Library
from tests.engine.shelf import ShelfUpstream
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine import runs
from tidegate.engine.lifecycle import RunState

FACTS = {"run_id", "job_id", "source", "kind", "resource", "page", "status", "attempt", "duration_ms"}


@pytest.fixture
def at_info() -> Iterator[StringIO]:
    lines = StringIO()
    configure_logs("json", "info", stream=lines)
    yield lines
    configure_logs(level="warning")


def events(lines: StringIO, *about: str) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [each for each in told if each["event"].partition(".")[0] in about]


async def test_every_job_and_every_run_has_a_log_line_with_its_fields(
    local: Library, upstream: ShelfUpstream, logged: StringIO
):
    upstream.shelves = {"ada-novels": 3}
    async with local.working():
        run = await local.ended()

    jobs = events(logged, "job")
    assert [(one["event"], one["level"], one["kind"], one["resource"], one["page"]) for one in jobs] == [
        ("job.succeeded", "debug", "USER", "user:ada", "first"),
        ("job.succeeded", "debug", "SHELF", "shelf:ada-novels", "first"),
        ("job.succeeded", "debug", "SHELF", "shelf:ada-novels", "page 1"),
    ]
    assert all(one.keys() >= FACTS for one in jobs)
    assert {(one["run_id"], one["source"], one["status"], one["attempt"]) for one in jobs} == {
        (run.id, "shelves", 200, 1)
    }
    assert all(one["duration_ms"] >= 0 for one in jobs)
    started, completed = events(logged, "run")
    assert (started["event"], started["run_id"], started["source"], started["subject"]) == (
        *("run.started", run.id, "shelves", "ada"),
    )
    assert (completed["event"], completed["status"], completed["jobs"], completed["failed_jobs"]) == (
        *("run.completed", "completed", 3, 0),
    )
    assert completed["duration_ms"] >= 0


async def test_retries_and_failures_are_logged_at_info_and_successes_are_not(
    local: Library, upstream: ShelfUpstream, at_info: StringIO
):
    upstream.shelves = {"ada-novels": 1}
    upstream.trouble["/shelves/ada-novels/0"] = [502, 404]
    async with local.working():
        run = await local.ended()

    retried, failed = events(at_info, "job")
    assert (retried["event"], retried["status"], retried["attempt"]) == ("job.retried", 502, 1)
    assert retried["not_before"]
    assert (failed["event"], failed["level"], failed["status"], failed["attempt"]) == ("job.failed", "info", 404, 2)
    assert (retried["reason"], failed["reason"]) == ("status 502", "no such shelf")
    assert {one["run_id"] for one in (retried, failed)} == {run.id}


async def test_every_end_of_a_run_is_logged(local: Library, at_info: StringIO):
    canceled = await local.begin("ada")
    await local.orchestrator.cancel(canceled)
    failed = await local.begin("bob")
    await local.parts.database.transaction(runs.fail_pool, POOL, "no valid credential")
    await local.orchestrator.retry(failed)

    assert [(one["event"], one["run_id"]) for one in events(at_info, "run")] == [
        ("run.started", canceled),
        ("run.canceled", canceled),
        ("run.started", failed),
        ("run.failed", failed),
        ("run.resumed", failed),
    ]
    assert (await local.orchestrator.show(failed)).status is RunState.RUNNING
