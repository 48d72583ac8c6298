"""Pages at which a site's code fails: downloaded once, kept as dead letters, replayed when the code is mended."""

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest

from tests.processes.at_work import at_work
from tests.systems.crawl.core.harness import HOST, CrawlHarness, admitted, answered
from tests.systems.crawl.core.repairable_site import SITE
from tests.waiting import look_again, patience
from tidegate.engine import runs
from tidegate.engine.commit_batch import CommitBatch, WriteGroup, write_batch
from tidegate.engine.job_results import from_worker_deaths
from tidegate.engine.lifecycle import RunState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.runs import RunActive
from tidegate.engine.upstream import UpstreamSettings
from tidegate.settings import Settings
from tidegate.systems.crawl.opening import OpenCrawl, open_crawl
from tidegate.systems.crawl.raws import Raw
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.stages import SEARCH, STAGES, RawState
from tidegate.systems.crawl.targets import CrawlOptions
from tidegate_simulators.marketplace import LimitSettings, MarketplaceConfig, MarketplaceSimulator, WorldShape

PRODUCTS = 3
MARKET = MarketplaceConfig(
    world=WorldShape(products=PRODUCTS, keywords=1, per_page=10), limits=LimitSettings(per_identity=None)
)
LOCAL = UpstreamSettings(private_hosts=("127.0.0.1",))
CRAWL = CrawlSettings(
    delay=timedelta(0),
    sites=("tests.systems.crawl.core.repairable_site:SITE",),
    raw_attempts=1,
    per_minute=10**6,
    concurrency=10,
)


async def until(crawl: OpenCrawl, run_id: int, *states: RunState) -> None:
    async with patience():
        while (await crawl.cell.orchestrator.show(run_id)).status not in states:
            await look_again()


async def dead(crawl: OpenCrawl) -> list[Raw]:
    return (await crawl.raws.dead()).raws


@pytest.fixture(autouse=True)
def mended() -> None:
    SITE.broken.clear()


@pytest.mark.parametrize("broken", [{SEARCH}, {"detail"}], ids=str)
async def test_a_page_whose_parser_fails_is_downloaded_once(tmp_path: Path, broken: Collection[str]):
    SITE.broken.update(broken)
    settings = Settings(data_dir=tmp_path, crawl=CRAWL, upstream=LOCAL)
    async with (
        MarketplaceSimulator(MARKET) as market,
        open_crawl(settings) as crawl,
        at_work(crawl.cell.process()),
    ):
        options = CrawlOptions(url=market.url, keywords=market.world.keywords, site="mendable")
        run_id = await crawl.crawls.begin("daily", options)
        await until(crawl, run_id, RunState.COMPLETED, RunState.FAILED)
        letters = await dead(crawl)
        assert {letter.stage for letter in letters} == set(broken)
        assert all((letter.reason or "").startswith("KeyError: 'price'") for letter in letters)

        [store] = crawl.dead_letters()
        listed = await store.page(None, 10)
        assert [(one.id, one.name) for one in listed] == [(str(letter.id), letter.stage) for letter in letters]
        assert [one.id for one in await store.page(listed[0].id, 10)] == [one.id for one in listed[1:]]
        assert await store.replay([one.id for one in listed]) == len(letters)
        assert store.discard is None, "a product would stay incomplete"
        await until(crawl, run_id, RunState.COMPLETED, RunState.FAILED)
        async with patience():
            while len(await dead(crawl)) < len(letters):
                await look_again()

        SITE.broken.clear()
        await crawl.crawls.replay()
        await until(crawl, run_id, RunState.COMPLETED)
        async with patience():
            while any((one.missing or one.option is None) for one in (await crawl.products.page()).products):
                await look_again()
        found = (await crawl.products.page()).products
        truth = market.all_truth()
        assert {int(one.product_id): one.detail for one in found} == {id_: one.detail for id_, one in truth.items()}
        assert await dead(crawl) == []
        assert market.report().by_route == {
            "robots": 1,
            "search": 1,
            **{stage.value: PRODUCTS for stage in STAGES},
        }


async def test_a_search_is_stored_with_its_follow_up_jobs(local: CrawlHarness):
    run_id = await local.begin("p1")
    (page,) = await local.searches()
    assert (page.run_id, page.state, page.product_id, page.host) == (run_id, RawState.PROCESSED, "rope&1", HOST)
    assert await local.raws.body(page.id) == b'[["p1"],null]'


async def test_an_answer_that_killed_every_worker_is_a_dead_letter(local: CrawlHarness):
    """Such a job is given up by the engine, which knows nothing of pages; the stored answer must not go with it."""
    run_id = await local.begin("p1")
    job_id = await local.job(run_id, STAGES[1], "p1")
    written = await local.database.transaction(write_batch, CommitBatch(wanted=[job_id]), local.policy)
    claim = written.claimed[job_id]
    parked = ParkedAnswer("crawl:ada", answered({"said": "deadly"}).pack(), local.database.clock.now())
    await local.database.transaction(write_batch, CommitBatch(kept=[(claim, parked)]), local.policy)

    (again,) = (
        await local.database.transaction(write_batch, CommitBatch(wanted=[job_id]), local.policy)
    ).claimed.values()
    assert again.parked == parked
    given_up = from_worker_deaths(again, admitted(again))
    await local.database.transaction(write_batch, CommitBatch(groups=[WriteGroup([given_up])]), local.policy)

    (letter,) = (await local.raws.dead()).raws
    assert (letter.stage, letter.product_id, letter.shop_id) == ("detail", "p1", "s1")
    assert await local.raws.body(letter.id) == b'{"said":"deadly"}'
    assert (letter.reason or "").startswith("a worker died during the last of")

    await local.database.transaction(runs.retry_job, job_id)
    await local.end(job_id, answered({"said": "hello"}))
    assert [raw.state for raw in await local.all_raws()] == [RawState.PENDING], "the new answer takes its place"


async def test_an_answer_is_not_stored_for_a_job_that_passed_to_another_worker(local: CrawlHarness):
    run_id = await local.begin("p1")
    job_id = await local.job(run_id, STAGES[1], "p1")
    first, second = [
        (await local.database.transaction(write_batch, CommitBatch(wanted=[job_id]), local.policy)).claimed[job_id]
        for _ in range(2)
    ]
    parked = ParkedAnswer("crawl:ada", answered({"said": "late"}).pack(), local.database.clock.now())
    await local.database.transaction(write_batch, CommitBatch(kept=[(first, parked)]), local.policy)

    (third,) = (
        await local.database.transaction(write_batch, CommitBatch(wanted=[job_id]), local.policy)
    ).claimed.values()
    assert (second.fence, third.parked) == (2, None)


async def test_a_search_is_not_replayed_into_a_crawl_with_another_active_run(tmp_path: Path):
    SITE.broken.add(SEARCH)
    settings = Settings(data_dir=tmp_path, crawl=CRAWL, upstream=LOCAL)
    async with (
        MarketplaceSimulator(MARKET) as market,
        open_crawl(settings) as crawl,
    ):
        options = CrawlOptions(url=market.url, keywords=market.world.keywords, site="mendable")
        async with at_work(crawl.cell.process()):
            first = await crawl.crawls.begin("daily", options)
            await until(crawl, first, RunState.FAILED)
        (letter,) = await dead(crawl)
        second = await crawl.crawls.begin("daily", options)

        came = await crawl.crawls.replay()
        assert (came.replayed, came.refused) == (0, [f"{letter.id}: daily has an active run already: {second}"])
        with pytest.raises(RunActive):
            await crawl.crawls.replay_one(letter.id)
        assert [one.id for one in await dead(crawl)] == [letter.id]
