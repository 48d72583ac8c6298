"""Documents are written while a sync reads: late commits, clocks that differ, the same documents again and again."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.storage.documents.harness import StoreHarness, issue
from tests.storage.documents.sync.targets import Target, assert_equal, open_target
from tests.waiting import patience
from tidegate.core.clock import ManualClock
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.documents.document import DocumentSettings
from tidegate.storage.documents.sql import open_documents
from tidegate.storage.sql import Database

pytestmark = pytest.mark.race

WRITERS, BATCHES = 4, 15


@pytest.fixture
async def target(tmp_path: Path):
    async with open_target("duckdb", tmp_path) as opened:
        yield opened


@pytest.mark.smoke
async def test_a_sync_between_a_statement_and_its_late_commit_misses_nothing(
    harness: StoreHarness, target: Target
) -> None:
    """The transaction took its time before others that were committed, and copied, before it."""
    async with AsyncExitStack() as stack:
        late = await stack.enter_async_context(await Database.open(harness.url, clock=ManualClock(harness.clock.now())))
        documents = await open_documents(DocumentSettings(url=harness.mongo_url), late)
        stack.push_async_callback(documents.close)
        harness.clock.advance(timedelta(hours=1))
        await harness.write(issue("early"))
        await target.sync(harness.store)
        staged = await documents.of("github").stage([issue("late"), issue("later")])
        await late.transaction(staged.apply)

    await target.sync(harness.store)
    assert (await target.rows()).keys() == {"early", "late", "later"}
    await assert_equal(target, harness)


async def test_an_open_transaction_is_copied_after_its_commit(harness: StoreHarness, target: Target) -> None:
    if harness.mongo_url is not None or harness.url.startswith("sqlite"):
        pytest.skip("the store has no transaction that others overtake")
    written, may_commit = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async with await Database.open(harness.url, clock=ManualClock(harness.clock.now())) as other:
        staged = await SqlDocuments(other).of("github").stage([issue("late")])

        def slowly(tx: object) -> None:
            staged.apply(tx)  # pyright: ignore[reportArgumentType]
            loop.call_soon_threadsafe(written.set)
            from sqlalchemy.util import await_only

            await_only(may_commit.wait())

        transaction = asyncio.create_task(other.transaction(slowly))
        async with patience():
            await written.wait()
        harness.clock.advance(timedelta(hours=1))
        await harness.write(issue("early"))
        await target.sync(harness.store)
        assert (await target.rows()).keys() == {"early"}
        may_commit.set()
        await transaction

    await target.sync(harness.store)
    await assert_equal(target, harness)
    assert (await target.rows()).keys() == {"early", "late"}


async def test_after_concurrent_writes_a_sync_has_everything(harness: StoreHarness, target: Target) -> None:
    """Each writer has a clock of its own; all change the same documents."""

    async def write(number: int) -> None:
        clock = ManualClock(harness.clock.now() + timedelta(seconds=number - 2))
        async with await Database.open(harness.url, clock=clock) as database:
            documents = await open_documents(DocumentSettings(url=harness.mongo_url), database)
            try:
                for batch in range(BATCHES):
                    given = [issue(f"{each}", title=f"{number}-{batch}") for each in range(batch, batch + 30)]
                    staged = await documents.of("github").stage(given)
                    await database.transaction(staged.apply)
                    clock.advance(timedelta(milliseconds=number))
            finally:
                await documents.close()

    writers = asyncio.gather(*(write(number) for number in range(WRITERS)))
    while not writers.done():
        await target.sync(harness.store)
    await writers

    await target.sync(harness.store)
    await assert_equal(target, harness)
    assert len(await target.rows()) == BATCHES + 29
