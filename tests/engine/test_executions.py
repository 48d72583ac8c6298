"""Who worked on a job, when, and what came of it: one row for each claim, of the sources that ask for it."""

from typing import Any

import pytest
from sqlalchemy import delete, select

from tests.engine.conftest import Library
from tests.engine.rounds import begun, finished, shelf_job, write_or_find_overtaken
from tests.engine.shelf import ShelfUpstream
from tidegate.engine import executions, runs
from tidegate.engine.commit_batch import CommitBatch, CommitPolicy, WriteGroup, write_batch
from tidegate.engine.executions import Execution
from tidegate.engine.executions import ExecutionOutcome as Came
from tidegate.engine.job_store import Claim, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.tables import collection_runs, job_executions
from tidegate.storage.sql import Database, Transaction

RECORDED = CommitPolicy(recorded=frozenset({"shelves"}))


async def write(
    database: Database, *results: JobResult, wanted: dict[int, str] | None = None, terms: CommitPolicy = RECORDED
):
    """A round in which jobs are claimed for somebody."""
    callers = wanted or {}
    this = CommitBatch(wanted=list(callers), callers=callers, groups=[WriteGroup(results)] if results else [])
    return (await database.transaction(write_batch, this, terms)).claimed


async def executed(database: Database, job_id: int) -> list[Execution]:
    return await database.read(executions.of_job, job_id)


def rows(tx: Transaction) -> list[Any]:
    return list(tx.execute(select(job_executions)))


async def test_an_execution_begins_with_the_claim_and_ends_with_the_job(database: Database):
    _, job_ids = await begun(database, specs=[shelf_job(str(n)) for n in range(5)])
    claims = await write(database, wanted={job_id: f"librarian-{n}" for n, job_id in enumerate(job_ids)})
    (open_one,) = await executed(database, job_ids[0])
    assert (open_one.fence, open_one.credential, open_one.ended_at, open_one.outcome) == (1, "librarian-0", None, None)

    ends: list[tuple[JobState, dict[str, Any], Came]] = [
        (JobState.SUCCEEDED, {}, Came.SUCCEEDED),
        (JobState.UNAVAILABLE, {"reason": "robots"}, Came.UNAVAILABLE),
        (JobState.FAILED, {"reason": "gone"}, Came.FAILED),
        (JobState.READY, {"reason": "status 500"}, Came.RETRIED),
        (JobState.READY, {"reason": "slow down", "is_attempt": False}, Came.POSTPONED),
    ]
    results = [finished(claims[i], state, **more) for i, (state, more, _) in zip(job_ids, ends, strict=True)]
    await write(database, *results)

    for job_id, (_, more, outcome) in zip(job_ids, ends, strict=True):
        (one,) = await executed(database, job_id)
        assert (one.outcome, one.reason) == (outcome, more.get("reason"))
        assert one.ended_at is not None
        assert one.ended_at >= one.started_at


async def test_what_a_dead_worker_left_open_is_ended_as_lost_by_the_next_claim(database: Database):
    _, (job_id,) = await begun(database)
    old = (await write(database, wanted={job_id: "dead"}))[job_id]
    new = (await write(database, wanted={job_id: "heir"}))[job_id]

    overtaken = await write_or_find_overtaken(database, CommitBatch(groups=[WriteGroup([finished(old)])]), RECORDED)
    assert overtaken.overtaken, "the dead one comes back, and is told that it is too late"
    await write(database, finished(new, JobState.READY, reason="status 500"))
    third = (await write(database, wanted={job_id: "third"}))[job_id]
    await write(database, finished(third))

    told = [(each.fence, each.credential, each.outcome, each.reason) for each in await executed(database, job_id)]
    assert told == [
        (1, "dead", Came.LOST, None),
        (2, "heir", Came.RETRIED, "status 500"),
        (3, "third", Came.SUCCEEDED, None),
    ]


async def _canceled(database: Database, run_id: int) -> None:
    await database.transaction(runs.cancel, run_id)


async def _stranded(database: Database, _run_id: int) -> None:
    await database.transaction(runs.fail_pool, "pool", "no valid credential")


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("end", "outcome", "reason"), [(_canceled, Came.CANCELED, None), (_stranded, Came.FAILED, "no valid credential")]
)
async def test_what_is_under_way_ends_with_its_run(database: Database, end: Any, outcome: Came, reason: str | None):
    run_id, (job_id, other) = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    claims: dict[int, Claim] = await write(database, wanted={job_id: "a", other: "b"})
    await write(database, finished(claims[other]))

    await end(database, run_id)

    (one,) = await executed(database, job_id)
    assert (one.outcome, one.reason, one.ended_at is not None) == (outcome, reason, True)
    assert [each.outcome for each in await executed(database, other)] == [Came.SUCCEEDED]


@pytest.mark.every_server
async def test_they_go_with_their_jobs_and_others_are_not_recorded(database: Database):
    run_id, (job_id,) = await begun(database)
    await write(database, wanted={job_id: "a"}, terms=CommitPolicy(recorded=frozenset({"others"})))
    assert await database.read(rows) == []
    await write(database, wanted={job_id: "a"})
    assert len(await database.read(rows)) == 1

    await database.transaction(
        lambda tx: tx.execute(delete(collection_runs).where(collection_runs.c.id == run_id)).rowcount
    )

    assert await database.read(rows) == []


async def test_a_worker_records_who_made_each_call(local: Library, upstream: ShelfUpstream):
    library = Library(local.parts, upstream, records_executions={"shelves"})
    library.librarians = ["one", "two"]
    upstream.trouble["/shelves/ada-poems/0"] = [500]
    async with library.working():
        run = await library.ended()

    recorded = await library.parts.database.read(rows)
    assert len(recorded) == run.calls == run.total_jobs + 1
    assert {row.credential for row in recorded} <= {"one", "two"}
    assert all(row.ended_at is not None for row in recorded)
    assert sorted(row.outcome for row in recorded if row.outcome != Came.SUCCEEDED) == [Came.RETRIED]
