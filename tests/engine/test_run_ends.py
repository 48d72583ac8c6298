"""How runs end, what is told of it, and how they are taken up again."""

import asyncio
import re

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from tests.engine.batches import assert_counted, begun, claimed, finished, shelf_job, shown, write
from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream, broken
from tidegate.core.errors import NotFound
from tidegate.engine import runs
from tidegate.engine.job_results import to_rejected
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.runs import RunActive, RunCanceled
from tidegate.engine.source import Cursor, JobSpec
from tidegate.engine.tables import page_jobs
from tidegate.storage.sql import Database

USERS = frozenset({"USER"})


async def test_a_run_counts_calls_whatever_their_result(local: Library, upstream: ShelfUpstream):
    upstream.trouble["/users/ada"] = [429, broken()]
    upstream.trouble["/shelves/ada-novels/1"] = [500]
    upstream.trouble["/shelves/ada-empty/0"] = [404]
    async with local.working():
        run = await local.ended()

    assert run.calls == upstream.calls.total() == 3 + 5 + 2 + 1
    assert (run.unchanged_calls, run.documents) == (0, 10)
    assert run.created_at <= (run.started_at or run.created_at) <= (run.completed_at or run.created_at)
    assert (run.triggered_by, run.options) == ("manual", {})


async def test_a_304_to_a_request_without_a_condition_is_requested_again(local: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [304]
    async with local.working():
        run = await local.ended()

    assert (run.status, run.unchanged_calls, run.documents) == (RunState.COMPLETED, 0, 10)
    assert upstream.calls["/shelves/ada-poems/0"] == 2


async def test_a_run_has_the_failure_reason_of_its_last_job(local: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    async with local.working():
        run = await local.ended()

    assert (run.status, run.last_error) == (RunState.COMPLETED, "SHELF of shelf:ada-poems: no such shelf")


@pytest.mark.every_server
@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        (JobState.SUCCEEDED, ["LIST", "COVER"]),
        (JobState.FAILED, ["LIST", "COVER"]),
        (JobState.UNAVAILABLE, []),
        (JobState.READY, []),
    ],
)
async def test_dependent_jobs_start_when_their_job_has_ended_unless_nothing_is_readable(
    database: Database, state: JobState, kinds: list[str]
):
    first = JobSpec(kind="SHELF", resource="shelf:novels", params={"n": 1}, followed_by=("LIST", "COVER"))
    run_id, (job_id,) = await begun(database, specs=[first])
    (claim,) = await claimed(database, job_id)

    written = await write(database, [finished(claim, state)])

    added = [offer for offer in written.offers if offer.id != job_id]
    assert [offer.spec for offer in added] == [
        JobSpec(kind=kind, resource="shelf:novels", params={"n": 1}) for kind in kinds
    ]
    assert (await shown(database, run_id)).total_jobs == 1 + len(kinds)


@pytest.mark.every_server
async def test_a_list_with_gaps_keeps_its_cursor_once(database: Database):
    """Without a cursor before, and with one."""

    async def listed(etag: str, *, has_gaps: bool) -> Cursor | None:
        """End a listing; return the cursor with which the next run begins."""
        for end in (True, False):
            run_id, (job_id,) = await begun(database, specs=[shelf_job("novels")])
            (claim,) = await claimed(database, job_id)
            if end:
                await write(database, [finished(claim, cursor=Cursor(etag=etag, credential="c"), has_gaps=has_gaps)])
                await database.transaction(runs.complete, run_id)
            else:
                await database.transaction(runs.cancel, run_id)
        return claim.cursor

    def left(etag: str) -> Cursor:
        return Cursor(etag=etag, credential="c")

    assert await listed("one", has_gaps=True) is None
    assert await listed("two", has_gaps=True) == left("two")
    assert await listed("three", has_gaps=True) == left("three"), "an item that is never readable costs this once"
    assert await listed("four", has_gaps=False) == left("four")
    assert await listed("five", has_gaps=True) == left("four")
    assert await listed("six", has_gaps=False) == left("six")


@pytest.mark.every_server
async def test_a_stored_reason_is_short_and_valid_text_without_secrets(database: Database):
    run_id, (job_id, _) = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    (claim,) = await claimed(database, job_id)
    reason = "no\0 shelf \ud800 for password=hunter2, " + "x" * 100_000

    await write(database, [finished(claim, JobState.FAILED, reason=reason)])

    (job,) = await database.read(lambda tx: tx.execute(select(page_jobs).where(page_jobs.c.id == job_id)).all())
    kept, told = job.last_error, (await shown(database, run_id)).last_error
    assert kept.startswith(r"no shelf \ud800 for password=***, xxx")
    assert told is not None
    assert told.startswith(f"SHELF of shelf:novels: {kept[:100]}")
    assert (len(kept), len(told)) == (2000, 2000)


@pytest.mark.every_server
async def test_a_result_refused_by_the_database_is_recorded_with_the_driver_message_only(database: Database):
    _, (job_id,) = await begun(database)
    (claim,) = await claimed(database, job_id)
    with pytest.raises(DBAPIError) as refusal:
        await database.read(lambda tx: tx.execute(text("SELECT 'a value' FROM nowhere")))

    refused = to_rejected(finished(claim), refusal.value, database.clock.now())

    assert re.match(r"\w+: .*nowhere", refused.reason)
    assert not re.search(r"SELECT|a value|sqlalche|\[SQL|class", refused.reason)


async def test_a_run_that_cannot_be_planned_fails_with_the_reason(local: Library, upstream: ShelfUpstream):
    upstream.trouble["/users/ada"] = [404]
    async with local.working():
        run = await local.ended()
        assert (run.status, run.failed_jobs) == (RunState.FAILED, 1)
        assert run.last_error == "USER of user:ada: no such shelf"
        assert run.completed_at is not None

        assert await local.orchestrator.retry(run.id) == 1
        run = await local.until(run.id)
        assert (run.failed_jobs, run.last_error) == (0, None)

        other = await local.ended()  # the user may have another one

    assert other.id != run.id


async def test_watchers_are_notified_of_every_change(local: Library):
    async with local.working():
        run = await local.ended()

    assert set(local.moved) == {run.id}
    assert len(local.moved) >= 3  # its beginning, rounds, its end


@pytest.mark.every_server
@pytest.mark.parametrize("state", [JobState.FAILED, JobState.SUCCEEDED])
async def test_a_run_fails_when_a_planning_job_fails(database: Database, state: JobState):
    run_id, (user,) = await begun(database)
    (claim,) = await claimed(database, user)
    await write(database, [finished(claim, state, reason="who is that?")])
    assert (await shown(database, run_id)).status is RunState.FINALIZING

    assert await database.transaction(runs.complete, run_id, USERS)
    assert not await database.transaction(runs.complete, run_id, USERS)

    run = await shown(database, run_id)
    wanted = (
        (RunState.FAILED, "USER of user:ada: who is that?") if state is JobState.FAILED else (RunState.COMPLETED, None)
    )
    assert (run.status, run.last_error) == wanted


async def failed_run(database: Database, user: str = "ada", shelves: int = 2) -> tuple[int, list[int]]:
    """A run that is over, with nothing but failed jobs."""
    run_id, job_ids = await begun(database, user, [shelf_job(f"shelf {n}") for n in range(shelves)])
    claims = await claimed(database, *job_ids)
    await write(database, [finished(claim, JobState.FAILED, reason="no luck") for claim in claims])
    assert await database.transaction(runs.complete, run_id)
    return run_id, job_ids


async def test_one_failed_job_is_retried_alone(database: Database):
    run_id, (first, second) = await failed_run(database)

    (again,) = await database.transaction(runs.retry_job, first)

    assert again.id == first
    assert await database.transaction(runs.retry_job, first) == [], "it has not failed since"
    run = await assert_counted(database, run_id)
    assert (run.status, run.failed_jobs, run.completed_at) == (RunState.RUNNING, 1, None)
    assert run.last_error == "SHELF of shelf:shelf 1: no luck"

    (claim,) = await claimed(database, first)
    assert claim.attempt == 1, "from its first attempt"
    await write(database, [finished(claim)])
    assert (await shown(database, run_id)).status is RunState.FINALIZING
    with pytest.raises(NotFound, match="there is no job 999"):
        await database.transaction(runs.retry_job, 999)
    assert second > first


@pytest.mark.every_server
async def test_a_run_is_not_retried_while_the_user_has_another_active_run(database: Database):
    old, (job, _) = await failed_run(database)
    new, _ = await begun(database)

    for retry, number in ((runs.retry_failed, old), (runs.retry_job, job)):
        with pytest.raises(RunActive, match=f"ada has an active run already: {new}"):
            await database.transaction(retry, number)

    run = await assert_counted(database, old)
    assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 2)


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.race
async def test_of_a_concurrent_retry_and_start_one_succeeds(database: Database):
    for n in range(3):
        run_id, _ = await failed_run(database, f"user {n}", shelves=1)
        results = await asyncio.gather(
            *(database.transaction(runs.retry_failed, run_id), begun(database, f"user {n}")), return_exceptions=True
        )
        assert sum(isinstance(result, RunActive) for result in results) == 1, results


async def test_a_canceled_run_stays_canceled(database: Database):
    run_id, job_ids = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    claim, _ = await claimed(database, *job_ids)
    await write(database, [finished(claim, JobState.FAILED, reason="no luck")])
    assert await database.transaction(runs.cancel, run_id) == [job_ids[1]]

    for retry, number in ((runs.retry_failed, run_id), (runs.retry_job, job_ids[0])):
        with pytest.raises(RunCanceled, match=f"run {run_id} was canceled"):
            await database.transaction(retry, number)
    assert (await assert_counted(database, run_id)).status is RunState.CANCELED


@pytest.mark.every_server
async def test_retrying_failures_of_an_active_run_does_not_disturb_it(database: Database):
    run_id, job_ids = await begun(database)
    (user,) = await claimed(database, *job_ids)
    await write(database, [finished(user, follow_ups=[shelf_job("novels"), shelf_job("poems")])])
    run = await shown(database, run_id)
    assert run.status is RunState.RUNNING
    jobs = [job_ids[0] + 1, job_ids[0] + 2]
    novels, _ = await claimed(database, *jobs)
    await write(database, [finished(novels, JobState.FAILED, reason="no luck")])

    assert [job.id for job in await database.transaction(runs.retry_failed, run_id)] == [jobs[0]]

    run = await assert_counted(database, run_id)
    assert (run.status, run.failed_jobs, run.last_error) == (RunState.RUNNING, 0, None)


async def test_a_retried_job_is_enqueued_and_done(local: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    async with local.working():
        run = await local.ended()
        (failed,) = [job.id for job in await local.jobs(run.id) if job.status == JobState.FAILED]

        assert await local.orchestrator.retry_job(failed)
        run = await local.until(run.id)
        assert not await local.orchestrator.retry_job(failed)

    assert (run.failed_jobs, run.succeeded_jobs) == (0, 8)


async def test_a_gone_resource_is_remembered_for_the_next_run(local: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    async with local.working():
        await local.ended()
        await local.ended()

    (first, second) = [task for task in local.source.tasks if task.spec.resource == "shelf:ada-poems"][:2]
    assert first.cursor is None
    assert second.cursor is not None
    assert second.cursor.cursor == "was not there"


async def test_a_list_is_requested_again_by_the_credential_that_has_its_etag(local: Library, upstream: ShelfUpstream):
    """For anybody else the ETag is worthless, and an unchanged list would cost a call."""
    upstream.shelves = {f"ada-{n}": 1 for n in range(12)}
    local.librarians = ["first", "second", "third"]
    async with local.working():
        await local.ended()
        await local.ended()

    asked = {path: callers for path, callers in upstream.callers.items() if path.startswith("/shelves")}
    assert {len(callers) for callers in asked.values()} == {2}
    assert all(first == again for first, again in asked.values()), asked
    assert len({first for first, _ in asked.values()}) > 1, "several took part"


async def test_a_source_gets_the_attempt_number(local: Library, upstream: ShelfUpstream):
    upstream.trouble["/users/ada"] = [500, 429, 500]
    async with local.working():
        await local.ended()

    assert [task.attempt for task in local.source.tasks if task.spec.kind == "USER"] == [1, 2, 2, 3]
