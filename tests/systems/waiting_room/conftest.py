"""A harness for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.waiting_room.harness import RoomHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[RoomHarness]:
    """On SQLite and the embedded server: where the kind of server says nothing new."""
    async with harness_at(await migrated_file(tmp_path / "rooms.db"), embedded, clock) as opened:
        yield opened


@pytest.fixture
async def harness_on_each_server(
    migrated_url: str, embedded: Valkey, clock: ManualClock
) -> AsyncGenerator[RoomHarness]:
    """On each database in turn."""
    async with harness_at(migrated_url, embedded, clock) as opened:
        yield opened


@pytest.fixture
async def on_any_server(tmp_path: Path, valkey: Valkey, clock: ManualClock) -> AsyncGenerator[RoomHarness]:
    """On each kind of Valkey in turn."""
    async with harness_at(await migrated_file(tmp_path / "rooms.db"), valkey, clock) as opened:
        yield opened
