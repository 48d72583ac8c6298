"""Documents to copy, and destinations to copy them to."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.storage.documents.shelf import ALL_STORES, Shelf, open_shelf
from tests.storage.documents.sync.targets import ALL_TARGETS, Target, open_target


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[Shelf]:
    """An empty store in SQLite, where the kind of store says nothing new."""
    async with open_shelf("sqlite", tmp_path) as opened:
        yield opened


@pytest.fixture(params=ALL_TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Target]:
    """An empty destination of each kind."""
    async with open_target(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture(params=ALL_STORES)
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Shelf]:
    """An empty store of each kind."""
    async with open_shelf(request.param, tmp_path) as opened:
        yield opened
