"""A whole crawl of the simulated marketplace over real HTTP: what is in SQL at the end of a run is the truth."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.processes.at_work import at_work
from tests.servers.migrated import migrated_file
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.engine.lifecycle import RunState
from tidegate.engine.runs import Run
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.upstream import UpstreamClient, UpstreamSettings
from tidegate.primitives.gate import CredentialLimits
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.crawl.finalizing import CrawlFinalizer
from tidegate.systems.crawl.marketplace import MarketplaceSite
from tidegate.systems.crawl.processing import RawProcessor
from tidegate.systems.crawl.products import Product, Products
from tidegate.systems.crawl.raws import Raws
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.site import Sites
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.stages import SEARCH, RawState
from tidegate.systems.crawl.targets import CrawlOptions
from tidegate.systems.crawl.writing import CrawlWriter
from tidegate_simulators.marketplace import (
    Behaviour,
    LimitSettings,
    MarketplaceConfig,
    MarketplaceSimulator,
    WorldShape,
    parse_faults,
)

PRODUCTS, TRIES = 60, 9
FAULTS = "500=0.03,invalid=0.05,wrong=0.05,redirect=0.05,reset=0.03,truncated=0.03"
BRIEF = timedelta(milliseconds=20)


class Crawl:
    """One process that crawls one marketplace, without politeness, which has tests of its own."""

    def __init__(
        self, market: MarketplaceSimulator, valkey: Valkey, database: Database, client: UpstreamClient
    ) -> None:
        self.market, self.database = market, database
        self.parts = build_context(Settings(), valkey, database)
        crawling, sites = CrawlSettings(first_rest=BRIEF), Sites([MarketplaceSite()])
        self.processor = RawProcessor(database, sites, crawling)
        self.products, self.raws = Products(database), Raws(database)
        self.collector = Collector(
            CollectDependencies(database, self.parts.gate, self.parts.jobs, self.parts.owner, SqlDocuments(database)),
            [CrawlSource(sites, crawling, tries=TRIES)],
            caller=client,
            secrets=self,
            register_credentials=self.register,
            writers={"crawl": CrawlWriter()},
            finalizers=[CrawlFinalizer(database, self.processor).finalize],
            settings=CollectSettings(first_pause=BRIEF, longest_pause=BRIEF, max_attempts=TRIES),
        )

    async def register(self) -> None:
        limits = CredentialLimits(concurrency=20, per_minute=10**6, floor=0, metered=False)
        await self.parts.gate.register("crawl:one", pool="crawl", limits=limits)

    async def secret_of(self, credential: str) -> str:
        return msgspec.json.encode(self.market.identities[0].headers).decode()

    async def run(self) -> Run:
        """One run, to its end."""
        options = CrawlOptions(url=self.market.url, keywords=self.market.world.keywords)
        run_id = await self.collector.orchestrator.begin("crawl", options.subject("daily"), pool="crawl")
        async with patience():
            while (run := await self.collector.orchestrator.show(run_id)).status is not RunState.COMPLETED:
                assert run.status is not RunState.FAILED, run.last_error
                await look_again()
        return run

    async def all(self, *, is_gone: bool = False) -> dict[int, Product]:
        found = (await self.products.page(limit=1000, is_gone=is_gone)).products
        return {int(product.product_id): product for product in found}

    async def assert_true(self) -> None:
        """What is not gone is what is for sale, as it is now."""
        truth, found = self.market.all_truth(), await self.all()
        assert found.keys() == truth.keys()
        for product_id, true in truth.items():
            product = found[product_id]
            assert (product.mini_shop, product.detail, product.option) == (true.mini_shop, true.detail, true.options)
            assert (product.shop_id, product.missing) == (str(true.shop_id), {})


@asynccontextmanager
async def crawling(market: MarketplaceSimulator, valkey: Valkey, file: Path) -> AsyncGenerator[Crawl]:
    async with (
        await Database.open(await migrated_file(file)) as database,
        UpstreamClient(UpstreamSettings(private_hosts=("127.0.0.1",))) as client,
    ):
        crawl = Crawl(market, valkey, database, client)
        process = build_process(
            crawl.parts,
            handlers=crawl.collector.handlers,
            services=crawl.collector.services,
            leader_services={"recovery": crawl.collector.recovery_service, "raws": crawl.processor},
            on_death=[crawl.collector.recovery_service.notify, crawl.processor.notify],
        )
        async with at_work(process):
            yield crawl


@pytest.mark.full
@pytest.mark.parametrize("noise", [False, True], ids=["validators", "noise"])
async def test_products_equal_the_true_data_after_every_run(embedded: Valkey, tmp_path: Path, noise: bool):
    config = MarketplaceConfig(
        world=WorldShape(products=PRODUCTS, keywords=3, per_page=10, reprice=0.1, redescribe=0.1, restock=0.1),
        limits=LimitSettings(per_identity=None),
        behaviour=Behaviour(faults=parse_faults(FAULTS), validators=not noise, noise=noise),
    )
    async with MarketplaceSimulator(config) as market, crawling(market, embedded, tmp_path / "crawl.db") as crawl:
        first = await crawl.run()
        assert first.failed_jobs == 0
        await crawl.assert_true()
        before = await crawl.all()

        second = await crawl.run()
        kept = {raw.stage for raw in (await crawl.raws.page(run_id=second.id, limit=1000)).raws}
        assert kept <= {SEARCH}, "nothing changed, so of products nothing is kept"
        assert await crawl.all() == before
        assert (second.unchanged_calls > PRODUCTS * 2) != noise

        market.world.vanish(next(iter(before)))
        market.world.advance(3)
        await crawl.run()
        await crawl.assert_true()
        assert next(iter(before)) in await crawl.all(is_gone=True)
        assert await crawl.raws.counts([RawState.PENDING, RawState.FAILED]) == {
            RawState.PENDING: 0,
            RawState.FAILED: 0,
        }
