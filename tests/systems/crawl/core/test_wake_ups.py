"""Whoever keeps an answer has the leader look, wherever the leader is."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.servers.migrated import migrated_file
from tests.systems.crawl.core.harness import CrawlHarness
from tests.waiting import look_again, patience
from tidegate.core.ids import new_id
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.outbox_notifier import NotifiedRelay, OutboxNotifier
from tidegate.runtime.service import Service
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.crawl.stages import Stage
from tidegate.systems.crawl.writing import RAWS_STORED


@asynccontextmanager
async def running(service: Service) -> AsyncGenerator[None]:
    stopping = asyncio.Event()
    task = asyncio.create_task(service.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await task


async def until_applied(harness: CrawlHarness, products: int) -> None:
    async with patience():
        while await harness.products.count() < products:
            await look_again()


async def test_answers_of_this_process_and_of_others_are_applied_immediately(embedded: Valkey, tmp_path: Path):
    url, bell = await migrated_file(tmp_path / "rings.db"), Wakeup(embedded, embedded.unit(new_id()).key("raws"))
    async with await Database.open(url) as ours, await Database.open(url) as theirs:
        leader, worker = CrawlHarness(ours), CrawlHarness(theirs)
        announcer = OutboxNotifier(theirs, bell, leads_here=lambda: worker.processor.is_running, topic=RAWS_STORED)
        async with running(NotifiedRelay(leader.processor, bell)), running(announcer):
            run_id = await leader.begin("p1", "p2")
            await leader.answer(run_id, Stage.MINI_SHOP, "p1")
            await until_applied(leader, 1)
            assert (leader.processor.is_running, worker.processor.is_running) == (True, False)
            await worker.answer(run_id, Stage.MINI_SHOP, "p2")
            await until_applied(leader, 2)
        assert not leader.processor.is_running


async def test_a_new_leader_applies_existing_answers(local: CrawlHarness):
    """A process died between its commit and its wake-up."""
    await local.answer(await local.begin("p1"), Stage.MINI_SHOP, "p1")
    async with running(local.processor):
        await until_applied(local, 1)


async def test_a_wake_up_starts_another_check(local: CrawlHarness):
    async with await Database.open(f"sqlite:///{_file(local)}", clock=local.database.clock) as elsewhere:
        silent = CrawlHarness(elsewhere)
        async with running(local.processor):
            run_id = await silent.begin("p1")
            await silent.answer(run_id, Stage.MINI_SHOP, "p1")
            local.processor.notify()
            await until_applied(local, 1)


def _file(harness: CrawlHarness) -> str:
    return harness.database.name.partition("///")[2]
