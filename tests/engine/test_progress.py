"""What an operator is told of runs and their jobs, on every database."""

from datetime import UTC, datetime
from functools import partial

import pytest
from sqlalchemy import insert

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tidegate.core.errors import InvalidArgument
from tidegate.engine.lifecycle import UNFINISHED_JOBS, JobState, RunState
from tidegate.engine.reports.progress import ResourceProgress, jobs_of, kinds_of, list_runs, resources_of
from tidegate.engine.runs import Run
from tidegate.engine.tables import page_jobs, state_values
from tidegate.storage.sql import Transaction


async def runs_in(library: Library, **wanted: object) -> list[int]:
    found: list[Run] = await library.parts.database.read(partial(list_runs, **wanted))  # pyright: ignore[reportArgumentType]
    return [run.id for run in found]


@pytest.mark.every_server
async def test_runs_are_listed_newest_first_and_can_be_filtered(library: Library):
    ada, eve, zoe = [await library.begin(login) for login in ("ada", "eve", "zoe")]
    assert await library.orchestrator.cancel(eve)

    assert await runs_in(library) == [zoe, eve, ada]
    assert await runs_in(library, login="eve") == [eve]
    assert await runs_in(library, states=(RunState.PLANNING,)) == [zoe, ada]
    assert await runs_in(library, states=(RunState.PLANNING, RunState.CANCELED), before=zoe, limit=1) == [eve]
    twice = (RunState.CANCELED, RunState.PLANNING, RunState.CANCELED)
    assert await runs_in(library, states=twice, limit=3) == [zoe, eve, ada]
    assert await runs_in(library, login="eve", states=(RunState.PLANNING,)) == []
    assert await runs_in(library, login="eve", states=(RunState.PLANNING, RunState.CANCELED), before=zoe) == [eve]
    assert await runs_in(library, source="shelves") == [zoe, eve, ada]
    assert await runs_in(library, source="shelves", before=zoe, limit=1) == [eve]
    assert await runs_in(library, source="shelves", states=(RunState.CANCELED,)) == [eve]
    assert await runs_in(library, source="shelves", login="eve", states=(RunState.CANCELED,)) == [eve]
    assert await runs_in(library, source="attic") == await runs_in(library, source="attic", login="eve") == []
    assert await runs_in(library, login="nobody") == []
    with pytest.raises(InvalidArgument, match="limit"):
        await runs_in(library, limit=0)


@pytest.mark.every_server
async def test_the_jobs_of_runs_are_counted_by_kind_and_state(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    async with library.working():
        done = await library.begin()
        await library.until(done)
    waiting = await library.begin("eve")
    canceled = await library.begin("zoe")
    await library.orchestrator.cancel(canceled)

    found = await library.parts.database.read(kinds_of, [canceled, waiting, done, done])

    told = [(one.run_id, one.kind, one.total, one.waiting, one.succeeded, one.failed, one.canceled) for one in found]
    assert told == [
        (done, "SHELF", 6, 0, 5, 1, 0),
        (done, "USER", 1, 0, 1, 0, 0),
        (waiting, "USER", 1, 1, 0, 0, 0),
        (canceled, "USER", 1, 0, 0, 0, 1),
    ]
    assert [one.ended for one in found] == [6, 1, 0, 1]
    assert await library.parts.database.read(kinds_of, []) == []


@pytest.mark.every_server
async def test_every_state_of_a_job_has_its_own_count(library: Library):
    run_id = await library.begin()
    names = {
        JobState.READY: "retrying",
        JobState.ENQUEUED: "waiting",
        JobState.RUNNING: "running",
        JobState.SUCCEEDED: "succeeded",
        JobState.UNAVAILABLE: "unavailable",
        JobState.FAILED: "failed",
        JobState.CANCELED: "canceled",
    }
    counts = {state: number for number, state in enumerate(JobState, 1)}
    await library.parts.database.transaction(_replace_jobs, run_id, counts)

    (found,) = await library.parts.database.read(kinds_of, [run_id])

    assert {state: getattr(found, name) for state, name in names.items()} == counts
    assert found.total == sum(counts.values())
    assert found.ended == sum(counts[state] for state in JobState if state not in UNFINISHED_JOBS)


@pytest.mark.every_server
async def test_jobs_are_paginated_and_filtered_by_state(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    async with library.working():
        run_id = await library.begin()
        await library.until(run_id)
    await library.begin("eve")
    read = library.parts.database.read

    everything = await read(jobs_of, run_id)
    first = await read(partial(jobs_of, limit=4), run_id)
    rest = await read(partial(jobs_of, after=first[-1].id), run_id)
    failed = await read(partial(jobs_of, states=(JobState.FAILED, JobState.RUNNING)), run_id)

    assert first + rest == everything
    assert [job.id for job in everything] == sorted(job.id for job in everything)
    assert {job.run_id for job in everything} == {run_id}
    assert [(job.resource, job.status, job.last_error) for job in failed] == [
        ("shelf:ada-poems", JobState.FAILED, "no such shelf")
    ]
    assert (failed[0].kind, failed[0].page, failed[0].attempts) == ("SHELF", "first", 1)
    assert failed[0].completed_at is not None
    with pytest.raises(InvalidArgument, match="after"):
        await read(partial(jobs_of, after=-1), run_id)


def _replace_jobs(tx: Transaction, run_id: int, counts: dict[JobState, int]) -> None:
    row = dict(tx.execute(page_jobs.select().where(page_jobs.c.run_id == run_id)).mappings().one())
    tx.execute(page_jobs.delete().where(page_jobs.c.run_id == run_id))
    del row["id"]
    states = [(state, number) for state, count in counts.items() for number in range(count)]
    tx.insert_many(
        page_jobs, [{**row, "page_key": f"{state} {number}", **state_values(state)} for state, number in states]
    )


@pytest.mark.every_server
async def test_resources_are_counted_until_their_last_job_has_ended(library: Library):
    """Regardless of case, and without the jobs that find them."""
    run_id, at = await library.begin("ada"), datetime(2026, 3, 1, tzinfo=UTC)
    rows = [
        ("SHELF", "repo:a/one", "1", JobState.SUCCEEDED),
        ("SHELF", "repo:A/One", "2", JobState.FAILED),
        ("SHELF", "repo:a/two", "1", JobState.SUCCEEDED),
        ("SHELF", "repo:a/two", "2", JobState.ENQUEUED),
        ("SHELF", "repo:a/three", "1", JobState.CANCELED),
        ("SHELF", "report:a", "1", JobState.ENQUEUED),
        ("PLAN", "repo:a/four", "1", JobState.SUCCEEDED),
    ]

    def fill(tx: Transaction) -> None:
        for kind, resource, page, status in rows:
            row = {"run_id": run_id, "job_type": kind, "resource_key": resource, "page_key": page, "spec": {}}
            row |= {**state_values(status), "fence": 0, "attempt_count": 0, "max_attempts": 5, "created_at": at}
            tx.execute(insert(page_jobs).values(row))

    await library.parts.database.transaction(fill)

    def read(tx: Transaction) -> dict[int, ResourceProgress]:
        return resources_of(tx, [run_id, run_id + 1], "repo:", besides=["PLAN"])

    assert await library.parts.database.read(read) == {run_id: ResourceProgress(total=3, ended=1)}
