"""Rounds: what is written together, what is not, and what a commit of unknown fate leaves behind."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import msgspec
import pytest
from sqlalchemy.util import await_only

from tests.engine.batches import assert_counted, begun, claimed, finished, shelf_job, shown
from tests.engine.conftest import Library
from tests.engine.shelf import ShelfSource, ShelfUpstream
from tests.servers.migrated import migrated_on
from tests.servers.proxy import Proxy
from tests.servers.sql import SERVERS
from tests.waiting import is_pending, patience
from tidegate.connections import build_context
from tidegate.engine import committer as committer_module
from tidegate.engine import run_counters
from tidegate.engine.commit_batch import CommitPolicy
from tidegate.engine.committer import Committer
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.job_store import Claim, JobResult
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import JobSpec, Reading, Task
from tidegate.engine.upstream import Answer
from tidegate.settings import Settings
from tidegate.storage.documents import Document, SqlDocuments
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey

QUICK = CollectSettings(first_pause=timedelta(milliseconds=1), longest_pause=timedelta(milliseconds=2))


class CarelessSource(ShelfSource):
    """Gives one job something that no database can take."""

    def read(self, task: Task, answer: Answer) -> Reading:
        reading = super().read(task, answer)
        if task.spec.resource != "shelf:ada-poems" or task.spec.kind != "SHELF":
            return reading
        return msgspec.structs.replace(reading, follow_ups=[JobSpec(kind="X", resource="x", params={"x": object()})])


@pytest.fixture
def committer(local: Library) -> Committer:
    """One that does not run, unless a test says so."""
    parts = local.parts
    consumer = parts.jobs.consumer("test")
    recovery = Recovery(parts.database, parts.gate)
    return Committer(parts.database, parts.gate, local.documents, consumer, recovery, policy=CommitPolicy())


async def test_an_unwritable_result_fails_alone(local: Library, monkeypatch: pytest.MonkeyPatch):
    local = Library(local.parts, local.upstream, settings=QUICK)
    monkeypatch.setattr(local.source, "read", CarelessSource().read)
    async with local.working():
        run = await local.ended()

    assert (run.status, run.failed_jobs, run.succeeded_jobs) == (RunState.COMPLETED, 1, 6)
    (failed,) = [job for job in await local.jobs(run.id) if job.status == JobState.FAILED]
    assert (failed.resource_key, failed.attempt_count) == ("shelf:ada-poems", 5)
    assert "TypeError: Encoding objects of type object is unsupported" in failed.last_error
    assert [item for item in await local.items() if "poems" in item] == []


@pytest.mark.every_server
@pytest.mark.parametrize("migrated_url", SERVERS, indirect=True)
async def test_claims_do_not_wait_for_results_on_a_server(database: Database, embedded: Valkey):
    """The batch of results is held up by a lock on its run. SQLite has one writer, and commits both together."""
    parts = build_context(Settings(), embedded, database)
    run_id, job_ids = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    (first,) = await claimed(database, job_ids[0])
    consumer, recovery = parts.jobs.consumer("test"), Recovery(database, parts.gate)
    committer = Committer(database, parts.gate, SqlDocuments(database), consumer, recovery, policy=CommitPolicy())
    stopping, is_locked, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def lock(tx: Transaction) -> None:
        run_counters.lock_runs(tx, [run_id])
        loop.call_soon(is_locked.set)
        await_only(may_end.wait())

    locking = asyncio.create_task(database.transaction(lock))
    running = asyncio.create_task(committer.run(stopping))
    async with patience():
        await is_locked.wait()
        await committer.finish(finished(first))
        claims = await committer.claim(job_ids[1:])
        assert (await shown(database, run_id)).succeeded_jobs == 0, "the results are still held up"
        may_end.set()
        await locking
        await committer.settled()
        stopping.set()
        await running
    assert list(claims) == job_ids[1:]
    assert (await shown(database, run_id)).succeeded_jobs == 1


async def written(committer: Committer, results: Sequence[JobResult]) -> None:
    """As the service does it, until all is settled."""
    stopping = asyncio.Event()
    running = asyncio.create_task(committer.run(stopping))
    for result in results:
        await committer.finish(result)
    await committer.settled()
    stopping.set()
    await running


async def test_documents_of_a_rejected_result_are_not_written(local: Library, committer: Committer):
    database = local.parts.database
    _, job_ids = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    late, good = await claimed(database, *job_ids)
    await claimed(database, late.job.id)

    def result(claim: committer_module.Claim, item: str) -> JobResult:
        document = Document.of("item", item, owner="ada", resource="shelf", body={})
        return msgspec.structs.replace(finished(claim), documents=[document])

    await written(committer, [result(late, "late"), result(good, "good")])

    assert await local.items() == ["good"]


async def test_a_job_delivered_twice_is_claimed_only_for_the_later_message(local: Library, committer: Committer):
    """It was offered again while its first message waited to be claimed: that one is worth nothing any more."""
    _, (job_id, other) = await begun(local.parts.database, specs=[shelf_job("novels"), shelf_job("poems")])
    first = asyncio.create_task(committer.claim([job_id, other]))
    second = asyncio.create_task(committer.claim([job_id]))
    while not (first.done() and second.done()):
        await written(committer, [])

    assert list(await first) == [other]
    assert list(await second) == [job_id]


async def test_a_claim_ended_twice_in_one_batch_counts_once(local: Library, committer: Committer):
    database = local.parts.database
    run_id, job_ids = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    claim, _ = await claimed(database, *job_ids)
    again = finished(claim)
    again = msgspec.structs.replace(again, settlement=msgspec.structs.replace(again.settlement, message="99-1"))

    await written(committer, [finished(claim), again])

    run = await assert_counted(database, run_id)
    assert (run.status, run.succeeded_jobs, run.calls) == (RunState.PLANNING, 1, 2), "the other job is not done"


def unwritable(claim: Claim) -> JobResult:
    return finished(claim, follow_ups=[JobSpec(kind="X", resource="x", params={"x": object()})])


async def test_claims_in_a_batch_with_a_bad_result_are_made(local: Library, committer: Committer):
    database = local.parts.database
    _, (bad, other) = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    (claim,) = await claimed(database, bad)
    claiming = asyncio.create_task(committer.claim([other]))
    await asyncio.sleep(0)  # it goes into the first round, with the result

    await written(committer, [unwritable(claim)])

    assert list(await claiming) == [other]


async def test_a_failed_claim_is_reported_and_blocks_no_result(local: Library, committer: Committer):
    database = local.parts.database
    run_id, (good, _) = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    (claim,) = await claimed(database, good)
    claiming = asyncio.create_task(committer.claim([cast("int", object())]))
    await asyncio.sleep(0)  # it goes into the first round, with the result

    await written(committer, [finished(claim)])

    with pytest.raises(TypeError, match="Encoding objects"):
        await claiming
    assert (await assert_counted(database, run_id)).succeeded_jobs == 1


async def test_the_write_queue_is_bounded_in_number_and_bytes(
    local: Library, committer: Committer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(committer_module, "_MOST_HELD", 3)
    database = local.parts.database
    _, job_ids = await begun(database, specs=[shelf_job(f"shelf {n}") for n in range(4)])
    results = [finished(claim) for claim in await claimed(database, *job_ids)]
    for result in results[:3]:
        async with patience():
            await committer.finish(result)

    fourth = asyncio.create_task(committer.finish(results[3]))
    assert await is_pending(fourth), "it has to wait"

    await written(committer, [])
    async with patience():
        await fourth
    monkeypatch.setattr(committer_module, "_MOST_BYTES", 0)
    async with patience():
        await committer.finish(results[0])
    fifth = asyncio.create_task(committer.finish(results[1]))
    assert await is_pending(fifth), "it has to wait"
    fifth.cancel()


async def test_follow_ups_of_a_commit_with_unknown_outcome_are_found(embedded: Valkey, upstream: ShelfUpstream):
    """The commit happened, and its answer was lost: the round is tried again, and finds itself overtaken."""
    async with (
        migrated_on("postgres") as (server, name),
        Proxy(server.port) as wire,
        await Database.open(server.url(name, port=wire.port)) as database,
    ):
        library = Library(build_context(Settings(), embedded, database), upstream)

        def cut(path: str) -> "asyncio.Future[None] | None":
            if path == "/users/ada":
                wire.cut_after(b"COMMIT;")  # of the round that ends this job and adds the shelves
            return None

        upstream.before_answer = cut
        async with library.working():
            run = await library.ended()

    assert (run.total_jobs, run.succeeded_jobs) == (8, 8)
    assert run.calls == upstream.calls.total() == 8, "counted once"
