"""The execution history of jobs: their requests and outcomes, and for some sources also their claims."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from tests.engine.batches import begun, finished, shelf_job, write_or_find_overtaken
from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tidegate.engine import executions, retention, runs
from tidegate.engine.commit_batch import CommitBatch, CommitPolicy, WriteGroup, write_batch
from tidegate.engine.executions import KEPT, Execution
from tidegate.engine.executions import ExecutionOutcome as Came
from tidegate.engine.job_store import Claim, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.reports.progress import job_of
from tidegate.engine.tables import job_executions
from tidegate.engine.upstream import ConnectionBroken, Request
from tidegate.engine.upstream.call_records import CallRecord
from tidegate.storage.sql import Database, Transaction

PLAIN = CommitPolicy()
RECORDED = CommitPolicy(records_claims=frozenset({"shelves"}))


async def write(
    database: Database, *results: JobResult, wanted: dict[int, str] | None = None, policy: CommitPolicy = RECORDED
):
    """A round in which jobs are claimed for somebody."""
    callers = wanted or {}
    this = CommitBatch(wanted=list(callers), callers=callers, groups=[WriteGroup(results)] if results else [])
    return (await database.transaction(write_batch, this, policy)).claimed


async def executed(database: Database, job_id: int) -> list[Execution]:
    return await database.read(executions.of_job, job_id)


def rows(tx: Transaction) -> list[Any]:
    return list(tx.execute(select(job_executions)))


async def test_an_execution_starts_with_the_claim_and_ends_with_the_job(database: Database):
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


async def test_an_execution_left_open_by_a_dead_worker_is_ended_as_lost_by_the_next_claim(database: Database):
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
async def test_open_executions_end_with_their_run(database: Database, end: Any, outcome: Came, reason: str | None):
    run_id, (job_id, other) = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    claims: dict[int, Claim] = await write(database, wanted={job_id: "a", other: "b"})
    await write(database, finished(claims[other]))

    await end(database, run_id)

    (one,) = await executed(database, job_id)
    assert (one.outcome, one.reason, one.ended_at is not None) == (outcome, reason, True)
    assert [each.outcome for each in await executed(database, other)] == [Came.SUCCEEDED]


@pytest.mark.every_server
async def test_executions_are_deleted_with_their_jobs(database: Database):
    run_id, (job_id,) = await begun(database)
    other, (kept_id,) = await begun(database, "other")
    await write(database, wanted={job_id: "a", kept_id: "a"})
    await database.transaction(runs.cancel, run_id)
    later = database.clock.now() + timedelta(days=1)

    assert await database.transaction(retention.delete_ended, [run_id, other], later, 100) == 2

    assert [row.job_id for row in await database.read(rows)] == [kept_id]


@pytest.mark.every_server
async def test_the_start_of_executions_is_recorded_only_for_listed_sources(database: Database):
    _, (job_id,) = await begun(database)
    await write(database, wanted={job_id: "a"}, policy=CommitPolicy(records_claims=frozenset({"others"})))
    assert await database.read(rows) == []
    await write(database, wanted={job_id: "a"})
    assert len(await database.read(rows)) == 1


@pytest.mark.every_server
async def test_results_of_every_source_are_recorded_with_their_request(database: Database):
    _, (job_id,) = await begun(database)
    sent_at = database.clock.now() - timedelta(seconds=3)
    call = CallRecord(sent_at=sent_at, duration_ms=120, method="GET", url="http://shelves.test/é?a='b'", status=500)
    first = (await write(database, wanted={job_id: ""}, policy=PLAIN))[job_id]
    assert await executed(database, job_id) == []
    next_try_at = database.clock.now() + timedelta(minutes=1)
    retried = {"reason": "status 500", "not_before": next_try_at, "credential": "one", "call": call}
    await write(database, finished(first, JobState.READY, **retried), policy=PLAIN)
    second = (await write(database, wanted={job_id: ""}, policy=PLAIN))[job_id]
    await write(database, finished(second), policy=PLAIN)

    failed, succeeded = await executed(database, job_id)

    assert (failed.fence, failed.credential, failed.outcome, failed.reason) == (1, "one", Came.RETRIED, "status 500")
    assert (failed.call, failed.next_try_at) == (call, next_try_at)
    assert (failed.started_at, succeeded.started_at) == (first.claimed_at, second.claimed_at)
    assert (succeeded.fence, succeeded.credential, succeeded.outcome) == (2, "librarian", Came.SUCCEEDED)
    assert (succeeded.call, succeeded.next_try_at, succeeded.reason) == (None, None, None)


@pytest.mark.every_server
async def test_a_result_of_a_worker_without_lease_is_not_recorded(database: Database):
    _, (job_id,) = await begun(database)
    old = (await write(database, wanted={job_id: ""}, policy=PLAIN))[job_id]
    new = (await write(database, wanted={job_id: ""}, policy=PLAIN))[job_id]
    late = finished(old, credential="frozen")

    overtaken = await write_or_find_overtaken(database, CommitBatch(groups=[WriteGroup([late])]), PLAIN)
    assert overtaken.overtaken == [late]
    await write_or_find_overtaken(database, CommitBatch(late=[late]), PLAIN)
    assert await executed(database, job_id) == []
    assert (await database.read(job_of, job_id)).unreported_claims == 1
    await write(database, finished(new, credential="heir"), policy=PLAIN)

    shown = await database.read(job_of, job_id)
    assert [(one.fence, one.credential, one.outcome) for one in shown.executions] == [(2, "heir", Came.SUCCEEDED)]
    assert shown.unreported_claims == 1


@pytest.mark.every_server
async def test_the_newest_executions_of_a_job_are_kept(database: Database):
    _, (often, other) = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    for _ in range(KEPT + 3):
        claims = await write(database, wanted={often: "", other: ""}, policy=PLAIN)
        await write(database, finished(claims[often], JobState.READY, is_attempt=False), policy=PLAIN)

    kept = await executed(database, often)

    assert [one.fence for one in kept] == list(range(4, KEPT + 4))
    assert (await database.read(job_of, often)).unreported_claims == 0
    assert await executed(database, other) == []


@pytest.mark.every_server
async def test_executions_cost_one_statement_per_batch(database: Database):
    with statements() as of_one:
        await write_all(database, 1)
    with statements() as of_many:
        await write_all(database, 60)

    assert len(of_one) == len(of_many)
    assert sum("INSERT INTO job_executions" in sql for sql in of_many) == 1


async def write_all(database: Database, jobs: int) -> None:
    _, job_ids = await begun(database, user=f"user-{jobs}", specs=[shelf_job(str(n)) for n in range(jobs)])
    claims = await write(database, wanted=dict.fromkeys(job_ids, ""), policy=PLAIN)
    await write(database, *(finished(claim) for claim in claims.values()), policy=PLAIN)


@contextmanager
def statements() -> Generator[list[str]]:
    """What is sent to the database meanwhile."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        sent.append(sql)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def test_a_worker_records_its_requests(local: Library, upstream: ShelfUpstream):
    lost = ConnectionBroken(Request(url="http://shelves.test/", purpose="shelves"), "reset", was_sent=None)
    unsent = ConnectionBroken(Request(url="http://shelves.test/", purpose="shelves"), "refused", was_sent=False)
    upstream.trouble["/shelves/ada-poems/0"] = [500, lost, unsent]
    async with local.working():
        run = await local.ended()

    found = await local.parts.database.read(rows)
    assert len(found) == run.total_jobs + 3
    tried = sorted((row for row in found if row.outcome != Came.SUCCEEDED), key=lambda row: row.fence)
    assert [row.call_record and row.call_record["status"] for row in tried] == [500, None, None]
    assert [row.call_record is None for row in tried] == [False, False, True]
    assert all(row.next_try_at is not None for row in tried)
    calls = [row.call_record for row in found if row.call_record is not None]
    assert len(calls) == run.calls
    assert {call["method"] for call in calls} == {"GET"}
    assert all(call["url"].startswith("http://shelves.test/") for call in calls)


async def test_a_worker_records_the_credential_of_each_call(local: Library, upstream: ShelfUpstream):
    library = Library(local.parts, upstream, records_claims={"shelves"})
    library.librarians = ["one", "two"]
    upstream.trouble["/shelves/ada-poems/0"] = [500]
    async with library.working():
        run = await library.ended()

    recorded = await library.parts.database.read(rows)
    assert len(recorded) == run.calls == run.total_jobs + 1
    assert {row.credential for row in recorded} <= {"one", "two"}
    assert all(row.ended_at is not None for row in recorded)
    assert sorted(row.outcome for row in recorded if row.outcome != Came.SUCCEEDED) == [Came.RETRIED]
