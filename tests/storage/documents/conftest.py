"""Every store in turn."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.storage.documents.harness import ALL_STORES, StoreHarness, open_harness


@pytest.fixture(params=ALL_STORES)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[StoreHarness]:
    """An empty store of each kind, with the database of its committer."""
    async with open_harness(request.param, tmp_path) as opened:
        yield opened
