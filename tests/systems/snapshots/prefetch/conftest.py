"""Planning on SQLite, and on every server where the SQL matters."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.snapshots.prefetch.planner_world import Planning, planning_at


@pytest.fixture
async def planning(tmp_path: Path) -> AsyncGenerator[Planning]:
    async with planning_at(await migrated_file(tmp_path / "planning.db")) as opened:
        yield opened


@pytest.fixture
async def planning_everywhere(migrated_url: str) -> AsyncGenerator[Planning]:
    async with planning_at(migrated_url) as opened:
        yield opened
