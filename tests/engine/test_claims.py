"""A resource that several runs reach is collected by one of them at a time; the others wait for it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.util import await_only

from tests.engine.batches import assert_counted, claimed, finished, write
from tests.engine.conftest import Library
from tests.servers.migrated import migrated_database
from tidegate.engine import claims, runs
from tidegate.engine.job_store import StoredJob, unfinished
from tidegate.engine.lifecycle import JobState
from tidegate.engine.reports.progress import jobs_of
from tidegate.engine.run_counters import lock_runs
from tidegate.engine.source import Cursor, JobSpec, Subject
from tidegate.engine.tables import page_jobs
from tidegate.storage.sql import Database, Transaction

LIST, NEXT = "SHELF", "NOTES"


def entry(resource: str = "shelf:poems", *followed_by: str) -> JobSpec:
    return JobSpec(kind=LIST, resource=resource, owner="library", claims=True, followed_by=followed_by)


async def begin(database: Database, user: str, *specs: JobSpec, pool: str = "pool") -> tuple[int, list[StoredJob]]:
    """A run, and those of its jobs that the gate is told of."""
    beginning = runs.NewRun("shelves", Subject(user_id=user, login=user), pool, "manual", list(specs) or [entry()])
    return await database.transaction(runs.begin, beginning)


async def offered(database: Database, run_id: int) -> list[int]:
    """What recovery would offer of a run."""
    return [job.id for job in await database.read(unfinished, [run_id], 0, 100)]


async def reasons(database: Database, run_id: int) -> list[str | None]:
    return [job.last_error for job in await database.read(jobs_of, run_id)]


@pytest.mark.every_server
async def test_a_second_run_waits_until_the_first_has_ended_every_list_of_the_resource(database: Database):
    first, [job] = await begin(database, "ada", entry("shelf:poems", NEXT))
    second, waiting = await begin(database, "eve", entry("shelf:poems", NEXT))
    assert waiting == []
    assert await offered(database, second) == []
    assert await reasons(database, second) == [f"waits for run {first}, which is collecting it"]

    [claim] = await claimed(database, job.id)
    cursor = Cursor(etag="W/1", credential="librarian")
    [following] = (await write(database, [finished(claim, cursor=cursor)])).offers
    assert (following.run_id, following.spec.kind) == (first, NEXT), "the resource is not done with"
    [claim] = await claimed(database, following.id)
    [released] = (await write(database, [finished(claim)])).offers

    assert (released.run_id, released.holder) == (second, "librarian"), "it goes on where the first run ended"
    assert await offered(database, second) == [released.id]
    assert await reasons(database, second) == [None]
    [claim] = await claimed(database, released.id)
    assert (claim.user_id, claim.cursor) == ("library", cursor)
    await write(database, [finished(claim)])
    await assert_counted(database, first)
    await assert_counted(database, second)


@pytest.mark.every_server
async def test_several_waiting_runs_are_released_one_after_the_other(database: Database):
    _, [job] = await begin(database, "ada")
    others = [(await begin(database, user))[0] for user in ("eve", "ben")]
    order = list[int]()
    while job is not None:
        [claim] = await claimed(database, job.id)
        offers = (await write(database, [finished(claim)])).offers
        job = offers[0] if offers else None
        order += [each.run_id for each in offers]
    assert order == others


async def test_a_completed_resource_is_not_waited_for(database: Database):
    _, jobs = await begin(database, "ada", entry("shelf:poems"), entry("shelf:novels"))
    [claim] = await claimed(database, next(job.id for job in jobs if job.spec.resource == "shelf:poems"))
    await write(database, [finished(claim)])

    _, [job] = await begin(database, "eve", entry("shelf:poems"), entry("shelf:novels"))
    assert job.spec.resource == "shelf:poems"


async def test_two_runs_may_wait_for_each_other_on_different_resources(database: Database):
    _, [poems] = await begin(database, "ada", entry("shelf:poems"))
    _, [novels] = await begin(database, "eve", entry("shelf:novels"))
    [first, second] = await claimed(database, poems.id, novels.id)
    crossed = [finished(first, follow_ups=[entry("shelf:novels")]), finished(second, follow_ups=[entry("shelf:poems")])]
    offers = (await write(database, crossed)).offers
    assert sorted(job.spec.resource for job in offers) == ["shelf:novels", "shelf:poems"], "both went on"


@pytest.mark.every_server
@pytest.mark.parametrize("end", ["canceled", "unserved"])
async def test_a_canceled_run_releases_waiting_jobs(database: Database, end: str):
    first, _ = await begin(database, "ada", pool="gone")
    second, _ = await begin(database, "eve")
    if end == "canceled":
        await database.transaction(runs.cancel, first)
        [released] = await database.transaction(claims.release, [first])
        assert released.run_id == second
    else:
        failed = await database.transaction(runs.fail_pool, "gone", "no valid credential")
        assert list(failed) == [first]
        [released] = await database.transaction(claims.release_late, [first])
        assert released.run_id == second
    assert len(await offered(database, second)) == 1


async def test_recovery_releases_jobs_that_wait_for_an_ended_run(database: Database):
    """A process died after the run was canceled and before it looked what waits for it."""
    first, _ = await begin(database, "ada")
    second, _ = await begin(database, "eve")
    await database.transaction(claims.release_all)
    assert await offered(database, second) == [], "the first is at work"
    await database.transaction(runs.cancel, first)
    await database.transaction(claims.release_all)
    assert len(await offered(database, second)) == 1


async def test_a_retried_job_that_waited_before_does_not_wait_again(database: Database):
    first, _ = await begin(database, "ada")
    second, _ = await begin(database, "eve", pool="gone")
    await database.transaction(runs.fail_pool, "gone", "no valid credential")
    await database.transaction(runs.cancel, first)
    [again] = await database.transaction(runs.retry_failed, second)
    assert await offered(database, second) == [again.id]


async def test_a_job_without_claims_never_waits(database: Database):
    await begin(database, "ada")
    _, jobs = await begin(database, "eve", JobSpec(kind=LIST, resource="shelf:poems"))
    assert len(jobs) == 1


@pytest.mark.every_server
async def test_concurrent_starts_and_ends_of_runs_lose_no_waiting_job(database: Database):
    """Whatever overlaps, at the end every run was released and is over."""
    resources = [f"shelf:{n}" for n in range(6)]

    async def collect(user: str) -> int:
        run_id, jobs = await begin(database, user, *(entry(resource) for resource in resources))
        todo = list(jobs)
        while todo:
            job = todo.pop()
            [claim] = await claimed(database, job.id)
            for offer in (await write(database, [finished(claim)])).offers:
                released.setdefault(offer.run_id, []).append(offer)
            todo += released.pop(run_id, [])
        return run_id

    released: dict[int, list[StoredJob]] = {}
    run_ids = await asyncio.gather(*(collect(f"user-{n}") for n in range(5)))
    while released:  # released by a run that was the last to end
        _, jobs = released.popitem()
        for job in jobs:
            [claim] = await claimed(database, job.id)
            for offer in (await write(database, [finished(claim)])).offers:
                released.setdefault(offer.run_id, []).append(offer)
    for run_id in run_ids:
        run = await assert_counted(database, run_id)
        assert (run.succeeded_jobs, run.total_jobs) == (6, 6)
    assert JobState.ENQUEUED not in {job.status for r in run_ids for job in await database.read(jobs_of, r)}


@pytest.mark.every_server
async def test_a_job_that_starts_waiting_during_a_cancellation_is_released(database: Database):
    """Its transaction saw the run at work, and was committed after the transaction that canceled the run."""
    first, _ = await begin(database, "ada")
    await database.transaction(runs.cancel, first)
    assert await database.transaction(claims.release, [first]) == [], "nothing waits so far"
    second, [job] = await begin(database, "eve")
    await database.transaction(wait_for, job.id, first)
    [released] = await database.transaction(claims.release_late, [first])
    assert released.run_id == second
    assert await offered(database, second) == [released.id]


@pytest.mark.every_server
async def test_a_job_waiting_for_an_ended_run_waits_for_the_run_that_holds_the_resource_now(database: Database):
    first, _ = await begin(database, "ada")
    await database.transaction(runs.cancel, first)
    second, _ = await begin(database, "eve")
    third, _ = await begin(database, "ben")
    [waiting] = [job.id for job in await database.read(jobs_of, third)]
    await database.transaction(wait_for, waiting, first)
    assert await database.transaction(claims.release_late, [first]) == [], "the second run is at work"
    assert await reasons(database, third) == [f"waits for run {second}, which is collecting it"]


@pytest.mark.every_server
async def test_jobs_released_by_an_end_are_known_although_its_answer_was_lost(database: Database):
    """The commit is unknown: the result is written again, comes too late, and what it released has to be offered."""
    first, [job] = await begin(database, "ada")
    second, _ = await begin(database, "eve")
    [claim] = await claimed(database, job.id)
    assert await database.read(claims.affected_runs, [job.id]) == [first]
    await write(database, [finished(claim)])
    assert await database.read(claims.affected_runs, [job.id]) == [first, second]


async def test_a_claim_passes_to_a_run_whose_counters_are_locked(tmp_path: Path):
    """A transaction holds its runs and then asks for claims; another one holds a claim and passes it to such a run."""
    async with migrated_database("postgres", tmp_path) as url, await Database.open(url) as database:
        _, [job] = await begin(database, "ada", entry("shelf:poems"))
        second, _ = await begin(database, "eve", entry("shelf:poems"))
        [claim] = await claimed(database, job.id)

        def while_locked(tx: Transaction) -> None:
            lock_runs(tx, [second])
            await_only(write(database, [finished(claim)]))

        await database.transaction(while_locked)
        assert len(await offered(database, second)) == 1


def wait_for(tx: Transaction, job_id: int, run_id: int) -> None:
    tx.execute(update(page_jobs).where(page_jobs.c.id == job_id).values(awaits_run=run_id))


async def test_canceling_a_run_releases_a_job_that_starts_waiting_meanwhile(
    library: Library, monkeypatch: pytest.MonkeyPatch
):
    database, gate = library.parts.database, library.parts.gate
    first, _ = await begin(database, "ada")
    forget = gate.forget

    async def wait_and_forget(job_ids: Sequence[str]) -> int:
        """Runs after the transaction that cancelled the run."""
        _, [job] = await begin(database, "eve")
        await database.transaction(wait_for, job.id, first)
        waiting.append((job.run_id, job.id))
        return await forget(job_ids)

    waiting: list[tuple[int, int]] = []
    monkeypatch.setattr(gate, "forget", wait_and_forget)
    assert await library.orchestrator.cancel(first)

    [(second, job_id)] = waiting
    assert await offered(database, second) == [job_id]


async def failed_resource(database: Database, user: str) -> tuple[int, int]:
    """A run of which the only job failed, and that is over: its id, and that of the job."""
    run_id, [job] = await begin(database, user)
    [claim] = await claimed(database, job.id)
    await write(database, [finished(claim, JobState.FAILED, reason="no luck")])
    assert await database.transaction(runs.complete, run_id)
    return run_id, job.id


@pytest.mark.every_server
async def test_a_retried_job_waits_for_the_run_that_collects_its_resource(database: Database):
    first, failed = await failed_resource(database, "ada")
    second, [job] = await begin(database, "eve")

    assert await database.transaction(runs.retry_failed, first) == []
    assert await reasons(database, first) == [f"waits for run {second}, which is collecting it"]
    assert await claimed_of(database, failed) == [], "a message of its last try is left"

    [claim] = await claimed(database, job.id)
    [released] = (await write(database, [finished(claim)])).offers
    assert (released.run_id, released.id) == (first, failed)
    [claim] = await claimed(database, failed)
    await write(database, [finished(claim)])
    await assert_counted(database, first)


@pytest.mark.every_server
@pytest.mark.parametrize("retry", ["run", "job"])
async def test_other_runs_wait_for_a_retried_job(database: Database, retry: str):
    first, failed = await failed_resource(database, "ada")
    second, [job] = await begin(database, "eve")
    [claim] = await claimed(database, job.id)
    await write(database, [finished(claim)])
    if retry == "run":
        [again] = await database.transaction(runs.retry_failed, first)
    else:
        [again] = await database.transaction(runs.retry_job, failed)

    third, waiting = await begin(database, "ben")
    assert waiting == []
    assert await reasons(database, third) == [f"waits for run {first}, which is collecting it"]
    assert again.id == failed
    assert second < third


@pytest.mark.every_server
async def test_a_retried_page_waits_like_the_first_job_of_its_resource(database: Database):
    first, [job] = await begin(database, "ada")
    page = JobSpec(kind=LIST, resource="shelf:poems", owner="library", page="page 2")
    [claim] = await claimed(database, job.id)
    [following] = (await write(database, [finished(claim, follow_ups=[page])])).offers
    [claim] = await claimed(database, following.id)
    await write(database, [finished(claim, JobState.FAILED, reason="no luck")])

    second, _ = await begin(database, "eve")
    assert await database.transaction(runs.retry_job, following.id) == []
    assert (await reasons(database, first))[1] == f"waits for run {second}, which is collecting it"


async def test_of_runs_that_waited_for_different_runs_one_is_released(database: Database):
    """Both runs are over, and what waited for them waits for the same resource."""
    gone = [(await begin(database, user))[0] for user in ("ada", "eve")]
    for run_id in gone:
        await database.transaction(runs.cancel, run_id)
    third, [job] = await begin(database, "ben")
    fourth, _ = await begin(database, "dan")
    [other] = [job.id for job in await database.read(jobs_of, fourth)]
    await database.transaction(wait_for, job.id, gone[0])
    await database.transaction(wait_for, other, gone[1])

    await database.transaction(claims.release_all)

    assert [await offered(database, run_id) for run_id in (third, fourth)] == [[job.id], []]
    assert await reasons(database, fourth) == [f"waits for run {third}, which is collecting it"]


async def claimed_of(database: Database, job_id: int) -> list[int]:
    return list((await write(database, wanted=[job_id])).claimed)


@pytest.mark.every_server
@pytest.mark.parametrize("migrated_url", ["sqlite", "postgres"], indirect=True)
async def test_the_index_of_waiting_jobs_contains_only_waiting_jobs(database: Database):
    def condition(tx: Transaction) -> str:
        if tx.dialect == "sqlite":
            listed = "SELECT sql FROM sqlite_master WHERE name = 'ix_page_jobs_awaits_run_resource_key'"
        else:
            listed = "SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_page_jobs_awaits_run_resource_key'"
        return str(tx.execute_sql(listed).scalar_one()).rpartition("WHERE")[2]

    assert "awaits_run IS NOT NULL" in await database.read(condition)
