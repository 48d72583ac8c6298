"""Processors killed with -9 in the middle of their work, one after the other: everything is applied, and once."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.processes import start_warm
from tests.servers.migrated import migrated_database
from tests.servers.sql import ALL_SQL, SqlName
from tests.systems.crawl.core.harness import CrawlHarness, answered, content
from tests.waiting import random_moment
from tidegate.storage.sql import Database
from tidegate.systems.crawl.stages import STAGES, RawState

ROOT = Path(__file__).parents[3]
PRODUCTS, TOGETHER, KILLS = 200, 10, 4

pytestmark = pytest.mark.crash


@pytest.mark.every_server
@pytest.mark.parametrize("server_name", ALL_SQL)
async def test_killed_processors_apply_each_answer_once(server_name: SqlName, tmp_path: Path):
    async with migrated_database(server_name, tmp_path) as url, await Database.open(url) as database:
        harness = CrawlHarness(database)
        products = [f"p{n}" for n in range(PRODUCTS)]
        run_id = await harness.begin(*products)
        arriving = asyncio.create_task(arrive(harness, run_id))
        for _ in range(KILLS):
            await kill_one(url)
        await arriving
        await harness.processor.drain()

        assert await harness.raws.counts() == {
            RawState.PENDING: 0,
            RawState.PROCESSED: 3 * PRODUCTS,
            RawState.FAILED: 0,
        }
        found = (await harness.products.page(limit=1000)).products
        assert len(found) == PRODUCTS
        for product in found:
            said = [content(stage, product.product_id, "hello") for stage in STAGES]
            assert [product.mini_shop, product.detail, product.option] == said
            assert (product.applied, product.missing) == (3, {})
        raws = (await harness.raws.page(limit=1000)).raws
        assert {(raw.product_id, raw.applied_as) for raw in raws} == {
            (product, place + 1) for product in products for place in range(3)
        }
        assert all(raw.applied_as == STAGES.index(raw.stage) + 1 for raw in raws), "and in order"


async def arrive(harness: CrawlHarness, run_id: int) -> None:
    """All answers, in any order, while processors come and go."""
    jobs = list((await harness.jobs(run_id)).values())
    random.shuffle(jobs)
    for at in range(0, len(jobs), TOGETHER):
        await harness.end_all(dict.fromkeys(jobs[at : at + TOGETHER], answered({"said": "hello"})))


async def kill_one(url: str) -> None:
    process = await start_warm(sys.executable, "-m", "tests.systems.crawl.core.process", url, stdout=PIPE, cwd=ROOT)
    assert process.stdout is not None
    await process.stdout.readline()
    await random_moment(0.25)
    process.kill()
    await process.wait()
