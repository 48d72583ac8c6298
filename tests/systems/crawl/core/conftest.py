"""Crawls on every kind of database, with a clock that stands still."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.crawl.core.plain import Stall
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database


@pytest.fixture
async def stall(migrated_url: str) -> AsyncGenerator[Stall]:
    """On each server in turn: where SQL differs."""
    async with await Database.open(migrated_url, clock=ManualClock()) as database:
        yield Stall(database)


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[Stall]:
    """On SQLite alone."""
    async with await Database.open(await migrated_file(tmp_path / "local.db"), clock=ManualClock()) as database:
        yield Stall(database)
