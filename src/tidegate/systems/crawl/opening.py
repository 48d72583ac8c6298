"""The open crawl of a process, with its routes, topics and metrics."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from tidegate.engine.collection import open_source
from tidegate.engine.dead_letter_stores import row_number
from tidegate.engine.source_cell import SourceCell
from tidegate.engine.system import OpenSource
from tidegate.engine.upstream.addresses import PrivateHosts
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.runtime.scrape_gauges import compute_gauges
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.system import Api, DeadLetterStore, DeadLetterSummary, Gauges, HttpContext, Topic
from tidegate.systems.crawl import SOURCE, metrics
from tidegate.systems.crawl.crawls import Crawls
from tidegate.systems.crawl.plugin import CrawlParts
from tidegate.systems.crawl.raws import Raws
from tidegate.systems.crawl.stages import RawState

if TYPE_CHECKING:
    from tidegate.systems.crawl.topics import CrawlReader


class CrawlGauges:
    """Gauges of pending answers and dead letters of crawls."""

    def __init__(self, database: Database) -> None:
        self._raws = Raws(database)

    async def refresh(self) -> None:
        """Read the counts; values that cannot be read become NaN."""
        await compute_gauges("crawl", self._set_gauges, [metrics.CRAWL_RAWS_PENDING, metrics.CRAWL_RAWS_DEAD])

    async def _set_gauges(self) -> None:
        counts = await self._raws.counts([RawState.PENDING, RawState.FAILED])
        metrics.CRAWL_RAWS_PENDING.set(counts[RawState.PENDING])
        metrics.CRAWL_RAWS_DEAD.set(counts[RawState.FAILED])


class OpenCrawl(OpenSource):
    """The open crawl: its cell, products, and the methods that start crawls."""

    def __init__(self, cell: SourceCell) -> None:
        super().__init__(cell)
        self.cell = cell
        self.identities, self.products, self.raws = cell.parts.get(CrawlParts)
        private_hosts = PrivateHosts(cell.parts.section(UpstreamSettings).private_hosts)
        self.crawls = Crawls(cell.orchestrator, cell.schedules, self.identities, self.raws, private_hosts)

    def api(self, http: HttpContext) -> Api:
        """The routes of crawls, products, hosts and identities."""
        del http
        from tidegate.systems.crawl.api import CrawlRoutes, IdentityRoutes, ProductRoutes

        routes = [
            self._overview,
            CrawlRoutes(self),
            ProductRoutes(self.products, self.raws, self.crawls),
            IdentityRoutes(self.identities),
        ]
        return Api(routes=[route for each in routes for route in each.routes()])

    def topics(self) -> Sequence[Topic]:
        """The topic of the crawl overview, for event streams of HTTP clients."""
        return [Topic("crawl", self._overview.read, follows_runs=True)]

    def dead_letters(self) -> Sequence[DeadLetterStore]:
        """Stored answers that could not be applied. They are not discarded: their products would stay incomplete."""
        return [DeadLetterStore("crawl", "the crawl", self._count_dead, self._dead_page, self._replay_dead)]

    def gauges(self) -> Sequence[Gauges]:
        """Gauges of pending answers and dead letters."""
        return [CrawlGauges(self.cell.parts.database)]

    @cached_property
    def _overview(self) -> "CrawlReader":
        from tidegate.systems.crawl.topics import CrawlReader

        return CrawlReader(self.cell.parts.database)

    async def _count_dead(self) -> Mapping[str, int]:
        return {"": (await self.raws.counts([RawState.FAILED]))[RawState.FAILED]}

    async def _dead_page(self, after: str | None, limit: int) -> Sequence[DeadLetterSummary]:
        found = await self.raws.dead(after=row_number(after), limit=limit)
        return [
            DeadLetterSummary(str(raw.id), raw.host, raw.stage, raw.reason or "", raw.processed_at or raw.received_at)
            for raw in found.raws
        ]

    async def _replay_dead(self, ids: Sequence[str]) -> int:
        return (await self.crawls.replay([int(each) for each in ids])).replayed


@asynccontextmanager
async def open_crawl(settings: Settings) -> AsyncGenerator[OpenCrawl]:
    """Open only the crawl, for the length of a block."""
    async with open_source(settings, SOURCE) as collection:
        yield OpenCrawl(collection.cell(SOURCE))
