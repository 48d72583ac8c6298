"""Whoever claimed last may end a job, and nobody else."""

from tests.collect.shelf import ShelfSource
from tidegate.collect import ledger, runs
from tidegate.collect.ledger import Claim, Ending
from tidegate.collect.lifecycle import JobState
from tidegate.collect.runs import Beginning
from tidegate.collect.source import JobSpec, Subject
from tidegate.database import Database, Transaction

ADA = Subject(user_id="ada", login="ada")
NEXT = JobSpec(kind="SHELF", resource="shelf:next")


async def begun(database: Database) -> tuple[int, int]:
    beginning = Beginning("shelves", ADA, "pool", "manual", list(ShelfSource().first_jobs(ADA)))
    run_id, (job,) = await database.transaction(runs.begin, beginning)
    return run_id, job.id


def end(tx: Transaction, claim: Claim) -> int:
    """What a round does with one result."""
    ours = ledger.still_ours(tx, [claim])
    endings = [Ending(claim=claim, state=JobState.SUCCEEDED, follow_ups=[NEXT])] if claim.job.id in ours else []
    ledger.write_endings(tx, endings)
    return len(runs.account_for(tx, endings, {}))


async def test_the_result_of_a_worker_that_was_overtaken_changes_nothing(database: Database):
    run_id, job_id = await begun(database)
    first = (await database.transaction(ledger.claim, [job_id]))[job_id]
    second = (await database.transaction(ledger.claim, [job_id]))[job_id]
    assert second.fence > first.fence

    assert await database.transaction(end, first) == 0
    run = await database.read(runs.get, run_id)
    assert (run.total_jobs, run.succeeded_jobs) == (1, 0)

    assert await database.transaction(end, second) == 1
    assert await database.transaction(end, second) == 0, "a result counts once"
    run = await database.read(runs.get, run_id)
    assert (run.total_jobs, run.succeeded_jobs) == (2, 1)


async def test_a_job_that_has_ended_cannot_be_claimed(database: Database):
    _, job_id = await begun(database)
    claim = (await database.transaction(ledger.claim, [job_id]))[job_id]
    await database.transaction(end, claim)

    assert await database.transaction(ledger.claim, [job_id, 999]) == {}
