"""Crawls on every kind of database, with a clock that stands still."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.crawl.core.harness import CrawlHarness
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database


@pytest.fixture
async def harness(migrated_url: str) -> AsyncGenerator[CrawlHarness]:
    """On each server in turn: where SQL differs."""
    async with await Database.open(migrated_url, clock=ManualClock()) as database:
        yield CrawlHarness(database)


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[CrawlHarness]:
    """On SQLite alone."""
    async with await Database.open(await migrated_file(tmp_path / "local.db"), clock=ManualClock()) as database:
        yield CrawlHarness(database)
