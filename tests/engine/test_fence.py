"""Whoever claimed last may end a job, and nobody else."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, select, text, update
from sqlalchemy.exc import DBAPIError

from tests.engine.batches import assert_counted, begun, claimed, finished, shelf_job, shown, write
from tidegate.engine import job_store
from tidegate.engine.job_store import JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.tables import page_jobs
from tidegate.storage.documents import Document, SqlDocuments
from tidegate.storage.sql import Database, Transaction


@pytest.mark.every_server
async def test_a_result_with_an_old_fencing_token_changes_nothing(database: Database):
    run_id, (job_id,) = await begun(database)
    (first,) = await claimed(database, job_id)
    (second,) = await claimed(database, job_id)
    assert second.fence > first.fence

    assert not (await write(database, [finished(first, follow_ups=[shelf_job("next")])])).offers
    run = await shown(database, run_id)
    assert (run.total_jobs, run.succeeded_jobs, run.calls) == (1, 0, 1)

    (added,) = (await write(database, [finished(second, follow_ups=[shelf_job("next")])])).offers
    assert added.spec == shelf_job("next")
    assert not (await write(database, [finished(second, follow_ups=[shelf_job("other")])])).offers, "counts once"
    run = await assert_counted(database, run_id)
    assert (run.total_jobs, run.succeeded_jobs, run.calls) == (2, 1, 3)


async def test_two_results_of_one_job_in_a_batch_count_once(database: Database):
    run_id, (job_id,) = await begun(database)
    (first,) = await claimed(database, job_id)
    (second,) = await claimed(database, job_id)

    await write(database, [finished(first), finished(second, JobState.FAILED, reason="no luck")])

    run = await assert_counted(database, run_id)
    assert (run.succeeded_jobs, run.failed_jobs) == (0, 1)


@pytest.mark.every_server
async def test_documents_of_a_result_with_an_old_fencing_token_are_not_written(database: Database):
    """Its documents stand among those of others, which are."""
    _, job_ids = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    store = SqlDocuments(database).of("shelves")
    late, good = await claimed(database, *job_ids)
    await claimed(database, late.job.id)
    documents = [
        Document.of("item", job.job.spec.resource, owner="ada", resource="shelf", body={}) for job in (late, good)
    ]

    written = await write(database, [finished(late), finished(good)], staged=await store.stage(documents))

    assert not written.overtaken
    assert await store.count("item") == 0, "a committer stages what is left anew"


async def test_an_ended_job_cannot_be_claimed(database: Database):
    _, (job_id,) = await begun(database)
    (claim,) = await claimed(database, job_id)
    await write(database, [finished(claim)])

    assert (await write(database, wanted=[job_id, 999])).claimed == {}


@pytest.mark.every_server
async def test_results_that_end_differently_are_written_by_one_statement(database: Database):
    _, job_ids = await begun(database, specs=[shelf_job(str(n)) for n in range(6)])
    claims = await claimed(database, *job_ids)
    (claims[4],) = await claimed(database, job_ids[4])
    soon, late = (database.clock.now().replace(microsecond=0) + timedelta(hours=n) for n in (1, 2))
    updates: list[str] = []

    def listen(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if statement.lstrip().startswith("UPDATE") and "page_jobs" in statement:
            updates.append(statement)

    event.listen(Engine, "before_cursor_execute", listen)
    try:
        await write(
            database,
            [
                finished(claims[0], JobState.READY, not_before=late, reason="503"),
                finished(claims[1], JobState.READY, not_before=soon, reason="503", is_attempt=False),
                finished(claims[2], JobState.FAILED, reason="404"),
                finished(claims[3]),
                finished(claims[4]),
            ],
        )
    finally:
        event.remove(Engine, "before_cursor_execute", listen)

    assert len(updates) == 1
    assert await ends(database, job_ids) == [
        (JobState.READY, None, late, 1, "503", False),
        (JobState.READY, None, soon, 0, "503", False),
        (JobState.FAILED, JobState.FAILED, None, 1, "404", True),
        (JobState.SUCCEEDED, JobState.SUCCEEDED, None, 1, None, True),
        (JobState.SUCCEEDED, JobState.SUCCEEDED, None, 2, None, True),
        (JobState.RUNNING, None, None, 1, None, False),
    ]


@pytest.mark.every_server
async def test_an_overtaken_result_among_others_that_end_differently_changes_nothing(database: Database):
    run_id, job_ids = await begun(database, specs=[shelf_job("a"), shelf_job("b"), shelf_job("c")])
    late, failing, good = await claimed(database, *job_ids)
    await claimed(database, late.job.id)
    results: list[JobResult] = [finished(late), finished(failing, JobState.FAILED, reason="404"), finished(good)]

    await write(database, results)

    states = [row[0] for row in await ends(database, job_ids)]
    assert states == [JobState.RUNNING, JobState.FAILED, JobState.SUCCEEDED]
    await assert_counted(database, run_id)


@pytest.mark.every_server
@pytest.mark.parametrize(("status", "end_state"), [("failed", None), ("running", "failed"), ("failed", "succeeded")])
async def test_the_end_state_of_a_job_agrees_with_its_state(database: Database, status: str, end_state: str | None):
    _, (job_id,) = await begun(database)

    def change(tx: Transaction) -> None:
        tx.execute(update(page_jobs).where(page_jobs.c.id == job_id).values(status=status, end_state=end_state))

    with pytest.raises(DBAPIError, match="end_state"):
        await database.transaction(change)


@pytest.mark.every_server
async def test_claims_change_no_index_on_postgresql(database: Database):
    """Entries in the indexes cost more than the claim. A few rows do not fit into the page of their old version."""
    if database.dialect != "postgresql":
        pytest.skip("it counts such updates")
    _, job_ids = await begun(database, specs=[shelf_job(str(n)) for n in range(100)])

    def claim(tx: Transaction) -> tuple[int, int]:
        claims = job_store.claim(tx, job_ids)
        counted = text("SELECT pg_stat_get_xact_tuples_hot_updated('page_jobs'::regclass)")
        return len(claims), tx.execute(counted).scalar_one()

    claimed_jobs, without_entries = await database.transaction(claim)
    assert claimed_jobs == 100
    assert without_entries >= 90


async def ends(database: Database, job_ids: list[int]) -> list[tuple[Any, ...]]:
    """State, end, next try, attempts and reason of each job, and whether it has a time of its end."""
    job = page_jobs.c
    columns = (job.status, job.end_state, job.not_before, job.attempt_count, job.last_error, job.completed_at)

    def read(tx: Transaction) -> list[tuple[Any, ...]]:
        rows = tx.execute(select(*columns).where(job.id.in_(job_ids)).order_by(job.id)).all()
        return [(*row[:-1], row[-1] is not None) for row in rows]

    return await database.read(read)
