"""Whoever claimed last may end a job, and nobody else."""

import pytest

from tests.engine.batches import assert_counted, begun, claimed, finished, shelf_job, shown, write
from tidegate.engine.lifecycle import JobState
from tidegate.storage.documents import Document, SqlDocuments
from tidegate.storage.sql import Database


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
