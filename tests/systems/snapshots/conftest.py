"""A deployment for each test, on the embedded server and SQLite."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.systems.snapshots.deployment import Deployment, deployed, game
from tidegate.storage.valkey import Valkey
from tidegate_simulators.game import GameSimulator


@pytest.fixture
async def sim() -> AsyncGenerator[GameSimulator]:
    async with game() as simulator:
        yield simulator


@pytest.fixture
async def deployment(tmp_path: Path, embedded: Valkey, sim: GameSimulator) -> AsyncGenerator[Deployment]:
    async with deployed(tmp_path, embedded, sim) as opened:
        yield opened
