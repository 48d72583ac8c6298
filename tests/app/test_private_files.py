"""Whatever is made in a data folder is readable by its owner alone."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tidegate.connections import open_context
from tidegate.engine.credentials import KeySource
from tidegate.settings import Settings


@pytest.fixture
def open_umask() -> Generator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("exists", [True, False])
async def test_new_files_are_private_regardless_of_umask_and_folder(tmp_path: Path, *, exists: bool):
    folder = tmp_path / "data"
    if exists:
        folder.mkdir(mode=0o755)
    settings = Settings(data_dir=folder)
    async with open_context(settings) as parts:
        KeySource(folder).make()
        await parts.database.transaction(lambda tx: tx.execute_sql("CREATE TABLE a_table (a INTEGER)"))

        made = {path.relative_to(folder): path.stat().st_mode & 0o777 for path in folder.rglob("*")}

    assert {"credentials.key", "tidegate.db", "tidegate.db-wal", "tidegate.db-shm", "valkey/server.log"} <= {
        str(name) for name in made
    }
    assert exists or folder.stat().st_mode & 0o777 == 0o700
    assert {str(name): oct(mode) for name, mode in made.items() if mode & 0o077} == {}
