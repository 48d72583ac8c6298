"""Stores to export from."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.storage.documents.shelf import ALL_STORES, Shelf, open_shelf


@pytest.fixture(params=ALL_STORES)
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Shelf]:
    """An empty store of each kind."""
    async with open_shelf(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[Shelf]:
    """An empty store in SQLite, where the kind of store says nothing new."""
    async with open_shelf("sqlite", tmp_path) as opened:
        yield opened
