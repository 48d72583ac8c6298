"""A stall for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.ticketing.stall import Stall, stall_at
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def stall(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[Stall]:
    """On SQLite: where the kind of server says nothing new."""
    async with stall_at(await migrated_file(tmp_path / "shop.db"), embedded, clock, tmp_path) as opened:
        yield opened


@pytest.fixture
async def anywhere(migrated_url: str, tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[Stall]:
    """On each database in turn."""
    async with stall_at(migrated_url, embedded, clock, tmp_path) as opened:
        yield opened
