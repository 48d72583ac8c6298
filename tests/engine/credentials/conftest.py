"""An installation on each database in turn, and one on SQLite where the database says nothing new."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.engine.credentials.harness import CredentialHarness, opened
from tests.servers.migrated import migrated_file
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey, database: Database) -> AsyncGenerator[CredentialHarness]:
    """On each database in turn."""
    async with opened(tmp_path, embedded, database) as harness:
        yield harness


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """A data folder with an SQLite file that has all tables."""
    await migrated_file(tmp_path / "tidegate.db")
    return tmp_path


@pytest.fixture
async def small_harness(data_dir: Path, embedded: Valkey) -> AsyncGenerator[CredentialHarness]:
    """On SQLite alone."""
    async with (
        await Database.open(f"sqlite:///{data_dir}/tidegate.db") as database,
        opened(data_dir, embedded, database) as harness,
    ):
        yield harness
