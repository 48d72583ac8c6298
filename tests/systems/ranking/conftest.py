"""A ranking on SQLite and the embedded server; tests whose SQL or scripts may differ elsewhere open their own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.ranking.stand import Stand, standing
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def stand(embedded: Valkey, tmp_path: Path) -> AsyncGenerator[Stand]:
    async with standing(await migrated_file(tmp_path / "tidegate.db"), embedded) as opened:
        yield opened
