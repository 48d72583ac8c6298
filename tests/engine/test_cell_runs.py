"""Runs of a source with a cell are retried and canceled by processes that do not know the source."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from tests.engine.cell_process import NamedShelfSource, tokens_of
from tests.engine.shelf import ShelfUpstream
from tests.engine.test_crash import serve
from tests.servers.migrated import migrated_folder
from tests.waiting import patience, until
from tidegate.app.application import Application, open_application
from tidegate.core.errors import NoCredential
from tidegate.engine.api.dead_letters import DeadLetterRoutes
from tidegate.engine.api.jobs import JobRoutes
from tidegate.engine.api.run_details import RunDetailReader
from tidegate.engine.api.runs import RunFeed, RunRoutes
from tidegate.engine.cells import CellService
from tidegate.engine.collection import Collection, open_sources
from tidegate.engine.commands.runs import cancel_run, retry_runs
from tidegate.engine.credentials import CredentialManager, records
from tidegate.engine.lifecycle import ACTIVE_RUNS, JobState, RunState
from tidegate.engine.reports.progress import jobs_of
from tidegate.engine.run_counters import ended_key, run_ended
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Subject
from tidegate.engine.system import OpenCollection
from tidegate.engine.tables import collection_runs
from tidegate.http.events import ListenerLimit
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event

BOOKSHOP = "bookshop"
LAST_PAGE = "/shelves/ada-shelf/1"


@dataclass(frozen=True)
class Bookshop:
    """A process that knows the source `bookshop`, its upstream, and the settings of the deployment."""

    settings: Settings
    collection: Collection
    upstream: ShelfUpstream

    async def begin(self) -> int:
        return await self.collection.begin(BOOKSHOP, Subject(user_id="ada", login="ada"))

    async def until_over(self, run_id: int) -> None:
        async def is_over() -> bool:
            return (await self.collection.show(run_id)).status not in ACTIVE_RUNS

        await until(is_over)

    async def failed_jobs(self, run_id: int) -> list[int]:
        def failed(tx: Transaction) -> list[int]:
            return [job.id for job in jobs_of(tx, run_id, states=[JobState.FAILED])]

        return await self.collection.parts.database.read(failed)


@asynccontextmanager
async def open_bookshop(tmp_path: Path) -> AsyncGenerator[Bookshop]:
    upstream = ShelfUpstream({"ada-shelf": 4})
    runner, url = await serve(upstream)
    settings = Settings(data_dir=await migrated_folder(tmp_path), collect=CollectSettings(max_attempts=1))
    async with open_sources(settings, [NamedShelfSource(BOOKSHOP, url)], tokens_of(BOOKSHOP)) as collection:
        yield Bookshop(settings, collection, upstream)
    await runner.cleanup()


@asynccontextmanager
async def working(collection: Collection | Application) -> AsyncGenerator[None]:
    process = collection.process()
    running = asyncio.create_task(process.run())
    try:
        yield
    finally:
        process.stop()
        await running


@asynccontextmanager
async def open_http(settings: Settings) -> AsyncGenerator[Collection]:
    """Another process, which serves HTTP and does not know the source."""
    async with open_application(settings, ["collection"]) as application:
        opened = application.find(OpenCollection)
        assert opened is not None
        yield opened.collection


def run_routes(collection: Collection) -> RunRoutes:
    details = RunDetailReader(collection)
    return RunRoutes(collection, details, RunFeed(details.detail, collection.change_feed, ListenerLimit(1)))


async def retry_by_command(settings: Settings, run_id: int, _job_id: int) -> None:
    (retried,) = await retry_runs(settings, [run_id], None)
    assert retried.jobs == 1


async def retry_job_by_command(settings: Settings, run_id: int, job_id: int) -> None:
    (retried,) = await retry_runs(settings, [run_id], job_id)
    assert retried.jobs == 1


async def retry_by_http(settings: Settings, run_id: int, _job_id: int) -> None:
    async with open_http(settings) as collection:
        assert (await run_routes(collection).retry_run(run_id)).jobs == 1


async def retry_job_by_http(settings: Settings, run_id: int, job_id: int) -> None:
    async with open_http(settings) as collection:
        assert (await JobRoutes(collection).retry_job(job_id)).run_id == run_id


@pytest.mark.parametrize("retry", [retry_by_command, retry_job_by_command, retry_by_http, retry_job_by_http])
async def test_a_retried_run_is_executed_by_the_workers_of_its_cell(
    tmp_path: Path, retry: Callable[[Settings, int, int], Awaitable[None]]
):
    async with open_bookshop(tmp_path) as shop, working(shop.collection):
        shop.upstream.trouble[LAST_PAGE] = [500]
        run_id = await shop.begin()
        await shop.until_over(run_id)
        (failed,) = await shop.failed_jobs(run_id)

        await retry(shop.settings, run_id, failed)
        await shop.until_over(run_id)

        run = await shop.collection.show(run_id)
        assert (run.status, run.failed_jobs, shop.upstream.calls[LAST_PAGE]) == (RunState.COMPLETED, 0, 2)


async def cancel_by_command(settings: Settings, run_id: int) -> None:
    assert (await cancel_run(settings, run_id)).was_active


async def cancel_by_http(settings: Settings, run_id: int) -> None:
    async with open_http(settings) as collection:
        assert (await run_routes(collection).cancel_run(run_id)).status is RunState.CANCELED


@pytest.mark.parametrize("cancel", [cancel_by_command, cancel_by_http])
async def test_a_canceled_run_leaves_the_gate_of_its_cell(
    tmp_path: Path, cancel: Callable[[Settings, int], Awaitable[None]]
):
    async with open_bookshop(tmp_path) as shop:
        run_id = await shop.begin()
        gate = shop.collection.cells[BOOKSHOP].parts.gate
        assert await gate.lengths() == (1, 0)
        await cancel(shop.settings, run_id)
        assert await gate.lengths() == (0, 0)


def bury_an_end(tx: Transaction) -> tuple[int, int]:
    """A run without jobs whose end failed for good: the run, and its dead letter."""
    counters = [column.name for column in collection_runs.c if column.name.endswith(("jobs", "calls", "documents"))]
    row = dict.fromkeys([*counters, "skipped_items"], 0) | {
        "source": BOOKSHOP,
        "user_id": "ada",
        "login": "ada",
        "pool": BOOKSHOP,
        "status": RunState.FINALIZING,
        "active_key": "another",
        "triggered_by": "manual",
        "options": {},
        "created_at": tx.now,
    }
    tx.execute(insert(collection_runs).values(row))
    run_id = tx.execute(select(collection_runs.c.id)).scalar_one()
    outbox.add(tx, Event(run_ended(BOOKSHOP), key=ended_key(run_id), payload={"run_id": run_id}))
    (event,) = outbox.pending_page(tx)
    outbox.mark_dead(tx, event.id, attempts=1, error="a defect")
    return run_id, event.id


async def test_a_dead_letter_replayed_by_another_process_wakes_the_leader_of_the_cell(tmp_path: Path):
    async with open_bookshop(tmp_path) as shop, open_application(shop.settings, ["collection"]) as application:
        database, opened = application.context.database, application.find(OpenCollection)
        run_id, letter = await database.transaction(bury_an_end)
        other = application.process(works=False)
        running = asyncio.create_task(other.run())
        async with working(shop.collection):
            await shop.until_over(await shop.begin())  # the relay of the cell works, and has nothing to do
            assert opened is not None
            await DeadLetterRoutes(opened.collection).replay_dead_letter(f"outbox-{letter}")
            await shop.until_over(run_id)
            assert (await shop.collection.show(run_id)).status is RunState.COMPLETED
        other.stop()
        await running


async def test_a_run_without_credentials_left_fails_with_advice_for_its_source(tmp_path: Path):
    configured = ("tests.engine.cell_process:UnreachableBookshop",)
    settings = Settings(data_dir=await migrated_folder(tmp_path), sources=configured)
    advice = "tidegate credentials add --source bookshop"
    async with open_application(settings, ["sources"]) as application:
        collection, subject = sources_of(application), Subject(user_id="ada", login="ada")
        with pytest.raises(NoCredential, match=advice):
            await collection.begin(BOOKSHOP, subject)
        book = collection.cells[BOOKSHOP].credentials
        assert isinstance(book, CredentialManager)
        await book.add_token("abcdefgh12345678", owner="ada", name="one", check=False)
        run_id = await collection.begin(BOOKSHOP, subject)
        # `credentials remove` dies after its commit
        await application.context.database.transaction(records.remove, BOOKSHOP, "one")

    async with open_application(settings, ["sources"]) as application:
        collection, opened = sources_of(application), application.find(OpenCollection)
        assert opened is not None

        async def is_over() -> bool:
            return (await collection.show(run_id)).status not in ACTIVE_RUNS

        async with working(application):
            await until(is_over)
        failed = await collection.show(run_id)
        assert (failed.status, failed.calls) == (RunState.FAILED, 0)
        assert advice in (failed.last_error or "")

        assert (await run_routes(opened.collection).retry_run(run_id)).jobs == 1
        again = await collection.show(run_id)
        assert (again.status, again.last_error) == (RunState.FAILED, failed.last_error)
        assert await collection.cells[BOOKSHOP].parts.gate.lengths() == (0, 0)


def sources_of(application: Application) -> Collection:
    opened = application.find(OpenCollection)
    assert opened is not None
    return opened.collection


async def test_a_process_reports_that_a_service_of_a_cell_failed_to_drain():
    started = asyncio.Event()

    class FailsToDrain:
        async def run(self, stopping: asyncio.Event) -> None:
            started.set()
            await stopping.wait()
            raise ZeroDivisionError

    def cell() -> Supervisor:
        supervisor = Supervisor()
        supervisor.add("worker", FailsToDrain())
        return supervisor

    process = Supervisor()
    process.add("source bookshop", CellService(cell))
    running = asyncio.create_task(process.run())
    async with patience():
        await started.wait()
    process.stop()
    report = await running
    assert report.failed == ("source bookshop",)
