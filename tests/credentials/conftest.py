"""An installation on each database in turn, and one on SQLite where the database says nothing new."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.credentials.office import Office, opened
from tidegate.database import Database
from tidegate.database.migrate import migrate
from tidegate.valkey import Valkey


@pytest.fixture
async def office(tmp_path: Path, embedded: Valkey, database: Database) -> AsyncGenerator[Office]:
    """On each database in turn."""
    async with opened(tmp_path, embedded, database) as office:
        yield office


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with all tables, made once: most tests have nothing to say about migrations."""
    file = tmp_path_factory.mktemp("migrated") / "tidegate.db"

    async def make() -> None:
        async with await Database.open(f"sqlite:///{file}") as database:
            await migrate(database)

    asyncio.run(make())
    return file


@pytest.fixture
def data_dir(tmp_path: Path, migrated_file: Path) -> Path:
    """A data folder with an SQLite file that has all tables."""
    shutil.copy(migrated_file, tmp_path / "tidegate.db")
    return tmp_path


@pytest.fixture
async def small_office(data_dir: Path, embedded: Valkey) -> AsyncGenerator[Office]:
    """On SQLite alone."""
    async with (
        await Database.open(f"sqlite:///{data_dir}/tidegate.db") as database,
        opened(data_dir, embedded, database) as office,
    ):
        yield office
