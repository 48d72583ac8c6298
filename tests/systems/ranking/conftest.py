"""A ranking on SQLite and the embedded server; tests whose SQL or scripts may differ elsewhere open their own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.ranking.harness import RankingHarness, standing
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def harness(embedded: Valkey, tmp_path: Path) -> AsyncGenerator[RankingHarness]:
    async with standing(await migrated_file(tmp_path / "tidegate.db"), embedded) as opened:
        yield opened
