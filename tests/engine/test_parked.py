"""The upstream answered, and the document store is away: the answer waits, nobody asks twice, and others go on."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from sqlalchemy import func, select

from tests.engine.batches import begun, claimed, finished, shelf_job, write
from tests.engine.conftest import POOL, Library
from tests.engine.shelf import ShelfUpstream
from tests.servers.migrated import migrated_file
from tests.servers.mongo import mongo_database, mongo_port
from tests.servers.proxy import Proxy
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.core.clock import ManualClock
from tidegate.engine import job_results, parked_answer_store, runs, staging
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.tables import page_jobs, parked_answers
from tidegate.engine.upstream import Answer
from tidegate.settings import Settings
from tidegate.storage.documents import DocumentSettings, open_documents
from tidegate.storage.documents import mongo as mongo_module
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey

SOON = timedelta(milliseconds=100)


@pytest.fixture
async def wire() -> AsyncGenerator[Proxy]:
    async with Proxy(mongo_port()) as opened:
        yield opened


@pytest.fixture
async def shelved(
    tmp_path: Path, embedded: Valkey, upstream: ShelfUpstream, wire: Proxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Library]:
    """A library whose documents are in a MongoDB behind a wire that can be cut."""
    monkeypatch.setattr(mongo_module, "_FIND_WITHIN_MS", 2500)  # the driver looks again after 500 ms
    monkeypatch.setattr(job_results, "_ASK_AGAIN", SOON)
    monkeypatch.setattr(staging, "_REST", SOON)
    async with await Database.open(await migrated_file(tmp_path / "jobs.db")) as database, mongo_database() as url:
        name = url.rpartition("/")[2]
        store = await open_documents(DocumentSettings(url=f"mongodb://127.0.0.1:{wire.port}/{name}"), database)
        yield Library(build_context(Settings(), embedded, database), upstream, store)
        await store.close()


def parked_rows(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(parked_answers)).scalar_one()


async def until_parked(library: Library, at_least: int) -> None:
    async with patience():
        while await library.parts.database.read(parked_rows) < at_least:
            await look_again()


async def test_an_unwritable_answer_is_parked_and_not_requested_again(
    shelved: Library, upstream: ShelfUpstream, wire: Proxy
):
    await wire.refuse()
    async with shelved.working():
        run_id = await shelved.begin()
        await until_parked(shelved, 2)
        waiting = [job for job in await shelved.jobs(run_id) if job.status == JobState.READY]
        assert all(job.last_error.startswith("the answer is kept: mongodb://") for job in waiting)
        await wire.listen()
        run = await shelved.until(run_id)

    assert set(upstream.calls.values()) == {1}
    assert run.calls == upstream.calls.total()
    assert (run.failed_jobs, run.documents) == (0, 10)
    assert len(await shelved.items()) == 10
    assert {job.attempt_count for job in await shelved.jobs(run_id)} == {1}
    assert await shelved.parts.database.read(parked_rows) == 0
    ((bucket,),) = [credential.buckets for credential in (await shelved.parts.gate.status(POOL)).credentials]
    assert (bucket.held, bucket.lost) == (0, 0), "permits of tries without a call are given back"


async def test_a_silent_document_store_does_not_delay_jobs_without_documents(
    shelved: Library, upstream: ShelfUpstream, wire: Proxy
):
    upstream.shelves = {"ada-novels": 3}
    await wire.refuse()
    async with shelved.working():
        adas = await shelved.begin("ada")
        while upstream.calls["/shelves/ada-novels/0"] == 0:  # from now on the store is silent for 2.5 s
            await look_again()
        async with patience():
            await shelved.ended("bob")
        assert (await shelved.orchestrator.show(adas)).status is RunState.RUNNING
        await wire.listen()
        await shelved.until(adas)


def answer(body: bytes = b"{}") -> Answer:
    return Answer(
        status=200,
        headers=CIMultiDictProxy(CIMultiDict([("ETag", '"x"'), ("Link", "a"), ("link", "b")])),
        url="http://shelves.test/",
        received_at=ManualClock().now(),
        body=body,
        elapsed_ms=1.5,
    )


@pytest.fixture
async def still(migrated_url: str, clock: ManualClock) -> AsyncGenerator[Database]:
    """A database of each kind, whose time stands still."""
    async with await Database.open(migrated_url, clock=clock) as opened:
        yield opened


async def parked_job(database: Database, body: bytes = b"{}", user: str = "ada") -> tuple[int, int]:
    """A run with a job whose answer is parked."""
    run_id, (job_id,) = await begun(database, user, [shelf_job("novels")])
    (claim,) = await claimed(database, job_id)
    kept = ParkedAnswer("librarian", answer(body).pack(), database.clock.now())
    await write(database, [finished(claim, JobState.READY, is_attempt=False, parked=kept)])
    return run_id, job_id


@pytest.mark.every_server
async def test_the_next_attempt_finds_the_answer_within_an_hour(still: Database, clock: ManualClock):
    body = bytes(range(256)) * 1000  # longer than the shortest blob of any server
    _, job_id = await parked_job(still, body)
    clock.advance(timedelta(minutes=59))

    (claim,) = await claimed(still, job_id)

    assert claim.parked is not None
    assert (claim.parked.credential, claim.attempt) == ("librarian", 1)
    again = Answer.unpack(claim.parked.answer)
    assert (again.body, again.headers.getall("link")) == (body, ["a", "b"])

    await write(still, [finished(claim, JobState.READY, is_attempt=False, parked=claim.parked)])
    clock.advance(timedelta(minutes=2))  # the hour counts from the answer, and not from the last try
    (claim,) = await claimed(still, job_id)
    assert claim.parked is None
    assert await still.read(parked_rows) == 0


async def ended(database: Database, _run_id: int, job_id: int) -> None:
    (claim,) = await claimed(database, job_id)
    await write(database, [finished(claim)])


async def canceled(database: Database, run_id: int, _job_id: int) -> None:
    await database.transaction(runs.cancel, run_id)


async def removed(database: Database, run_id: int, _job_id: int) -> None:
    await database.transaction(lambda tx: tx.execute(page_jobs.delete().where(page_jobs.c.run_id == run_id)))


async def grown_old(database: Database, _run_id: int, _job_id: int) -> None:
    assert isinstance(database.clock, ManualClock)
    database.clock.advance(timedelta(minutes=61))
    await database.transaction(parked_answer_store.sweep)


async def test_an_answer_is_not_kept_longer_than_needed(still: Database):
    for n, over in enumerate((ended, canceled, removed, grown_old)):
        run_id, job_id = await parked_job(still, user=f"user {n}")
        assert await still.read(parked_rows) == 1
        await over(still, run_id, job_id)
        assert await still.read(parked_rows) == 0, over.__name__


async def test_pauses_grow_with_the_age_of_the_answer(still: Database):
    _, (job_id,) = await begun(still, specs=[shelf_job("novels")])
    (claim,) = await claimed(still, job_id)
    now = still.clock.now()
    pauses: list[float] = []
    for age in (0, 4, 20, 300):
        kept = ParkedAnswer("librarian", answer().pack(), now - timedelta(seconds=age))
        tried = finished(msgspec.structs.replace(claim, parked=kept))
        ending = job_results.to_parked(tried, "away", now)
        assert (ending.state, ending.is_attempt, ending.parked) == (JobState.READY, False, kept)
        assert ending.not_before is not None
        pauses.append((ending.not_before - now).total_seconds())
    assert pauses == [5, 5, 20, 60]
