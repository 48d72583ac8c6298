"""A stall for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.ticketing.harness import TicketingHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[TicketingHarness]:
    """On SQLite: where the kind of server says nothing new."""
    async with harness_at(await migrated_file(tmp_path / "shop.db"), embedded, clock, tmp_path) as opened:
        yield opened


@pytest.fixture
async def harness_on_each_server(
    migrated_url: str, tmp_path: Path, embedded: Valkey, clock: ManualClock
) -> AsyncGenerator[TicketingHarness]:
    """On each database in turn."""
    async with harness_at(migrated_url, embedded, clock, tmp_path) as opened:
        yield opened
