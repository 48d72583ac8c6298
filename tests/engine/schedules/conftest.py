"""Schedules on every SQL server, with a clock that stands still."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.engine.schedules.harness import ScheduleHarness, harness_at
from tests.servers.migrated import migrated_file
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def harness(migrated_url: str, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[ScheduleHarness]:
    async with harness_at(migrated_url, embedded, clock) as opened:
        yield opened


@pytest.fixture
async def local(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[ScheduleHarness]:
    """On SQLite alone: where the kind of server says nothing new."""
    async with harness_at(await migrated_file(tmp_path / "local.db"), embedded, clock) as opened:
        yield opened
