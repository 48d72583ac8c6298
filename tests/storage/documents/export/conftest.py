"""Stores to export from."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.storage.documents.harness import ALL_STORES, StoreHarness, open_harness


@pytest.fixture(params=ALL_STORES)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[StoreHarness]:
    """An empty store of each kind."""
    async with open_harness(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[StoreHarness]:
    """An empty store in SQLite, where the kind of store says nothing new."""
    async with open_harness("sqlite", tmp_path) as opened:
        yield opened
