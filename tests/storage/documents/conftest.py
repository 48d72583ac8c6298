"""Every store in turn."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.storage.documents.shelf import ALL_STORES, Shelf, open_shelf


@pytest.fixture(params=ALL_STORES)
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Shelf]:
    """An empty store of each kind, with the database of its committer."""
    async with open_shelf(request.param, tmp_path) as opened:
        yield opened
