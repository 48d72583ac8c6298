"""Declares the crawl to the application."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Command, Context, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.core.findings import Finding
    from tidegate.settings import Settings


class CrawlSystem(System):
    """Declares the crawl of product pages of marketplaces."""

    name = "crawl"
    requires = ("collection",)
    sections = {"crawl": "tidegate.systems.crawl.settings:CrawlSettings"}
    metrics = "tidegate.systems.crawl.metrics"
    sources = {"crawl": "tidegate.systems.crawl.plugin:CrawlPlugin"}
    commands = {
        "crawl": Command("tidegate.systems.crawl.commands.crawl:app", "Crawl marketplaces, and show the results.")
    }
    kept_tables = {
        "crawl_hosts": "one row for each host that is crawled; deleted by `tidegate crawl hosts --forget`",
        "crawl_identities": "deleted by `tidegate crawl identities remove`",
        "crawl_products": "the result of crawls: as many as the sites have listed",
        "crawl_sightings": "one row for each product and crawl",
        "crawl_turns": "a few rows that are locked",
    }
    encrypted_tables = ("crawl_identities",)

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Checks that the sites of the settings can be loaded."""
        from tidegate.systems.crawl.plugin import CrawlPlugin

        return [lambda: CrawlPlugin(settings).sites]

    def doctor_checks(self) -> "Mapping[str, Callable[[Settings], AsyncIterator[Finding]]]":
        """Check of the connections to sites."""
        from tidegate.systems.crawl import doctor

        return {"crawl": doctor.upstreams}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open the crawl for the length of a block."""
        from tidegate.engine.collection import Collection
        from tidegate.systems.crawl.opening import OpenCrawl
        from tidegate.systems.crawl.plugin import CrawlPlugin

        async with context.get(Collection).open_source(CrawlPlugin(context.settings)) as cell:
            yield OpenCrawl(cell)
