"""An empty world on every store in turn."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.storage.documents.harness import ALL_STORES
from tests.systems.github.statistics.world import World, open_world


@pytest.fixture(params=ALL_STORES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    """An empty world on each store."""
    async with open_world(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
async def small_world(tmp_path: Path) -> AsyncGenerator[World]:
    """An empty world on SQLite: for what has nothing to do with the kind of store."""
    async with open_world("sqlite", tmp_path) as opened:
        yield opened
