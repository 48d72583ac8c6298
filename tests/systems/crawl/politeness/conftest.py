"""Visits to a marketplace, by clocks that are moved by hand."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.crawl.politeness.harness import POLITE, SMALL, PolitenessHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate_simulators.marketplace import LimitSettings, MarketplaceConfig, RobotsSettings


class Open(Protocol):
    async def __call__(
        self, robots: RobotsSettings = ..., crawl: CrawlSettings = ..., limits: LimitSettings = ...
    ) -> PolitenessHarness: ...


@pytest.fixture
async def opened(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[Open]:
    """Opens a visit, on SQLite, to a marketplace with this robots.txt."""
    async with AsyncExitStack() as stack:

        async def open_visit(
            robots: RobotsSettings = RobotsSettings(),  # noqa: B008 - frozen
            crawl: CrawlSettings = POLITE,
            limits: LimitSettings = LimitSettings(),  # noqa: B008 - frozen
        ) -> PolitenessHarness:
            url = await migrated_file(tmp_path / "tidegate.db")
            database = await stack.enter_async_context(await Database.open(url, clock=clock))
            config = MarketplaceConfig(world=SMALL, robots=robots, limits=limits, identities=4)
            return await stack.enter_async_context(harness_at(tmp_path, embedded, database, config, crawl))

        yield open_visit


@pytest.fixture
async def harness(opened: Open) -> PolitenessHarness:
    """To a marketplace as it is by default, which nobody has called yet."""
    return await opened()


@pytest.fixture
async def everywhere(
    tmp_path: Path, embedded: Valkey, migrated_url: str, clock: ManualClock
) -> AsyncGenerator[PolitenessHarness]:
    """On each database in turn."""
    async with (
        await Database.open(migrated_url, clock=clock) as database,
        harness_at(tmp_path, embedded, database, MarketplaceConfig(world=SMALL)) as harness,
    ):
        yield harness
