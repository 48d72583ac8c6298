"""A sync that is killed is continued by the next one; until then readers see complete rows and files."""

import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.cli.test_commands import environment
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_file
from tests.storage.documents.harness import issue
from tests.storage.documents.sync.targets import Target, expected, open_target
from tidegate.storage.documents import DocumentStore, SqlDocuments
from tidegate.storage.documents.sync.destination import SyncFailed
from tidegate.storage.sql import Database
from tidegate.systems.github.kinds import COLUMNS

pytestmark = pytest.mark.crash

DOCUMENTS, EACH = 4000, 100
KINDS = {"issue": COLUMNS["issue"]}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[DocumentStore]:
    """The store of an installation, where the command finds it."""
    (tmp_path / "data").mkdir()
    async with await Database.open(await migrated_file(tmp_path / "data" / "tidegate.db")) as database:
        store = SqlDocuments(database).of("github")
        for start in range(0, DOCUMENTS, EACH):
            staged = await store.stage(
                [issue(f"{number:05}", title="t" * 100) for number in range(start, start + EACH)]
            )
            await database.transaction(staged.apply)
        yield store


async def stopped(folder: Path, moment: str, target: Target) -> WarmProcess:
    """The command, stopped at its `moment`."""
    process = await start_warm(
        *(sys.executable, "-m", "tests.storage.documents.sync.interrupted", moment),
        *("sync", "--to", target.url, "--kind", "issue"),
        stdout=PIPE,
        stderr=PIPE,
        env=environment(folder),
    )
    assert process.stdout
    assert await process.stdout.readline() == f"{moment}\n".encode()
    return process


@pytest.mark.parametrize(
    ("target", "moment"),
    [
        ("duckdb", "rows"),
        ("duckdb", "commit"),
        ("postgres", "rows"),
        ("parquet", "rows"),
        ("parquet", "rename"),
        ("jsonl", "rows"),
        ("jsonl", "rename"),
    ],
    indirect=["target"],
)
async def test_a_killed_sync_is_continued(store: DocumentStore, target: Target, moment: str, tmp_path: Path) -> None:
    process = await stopped(tmp_path, moment, target)
    process.kill()
    await process.communicate()
    before = 0
    if target.name in ("parquet", "jsonl"):
        assert not target.file().exists()
    else:
        before = len(await target.rows())
        assert before == 0 if moment == "commit" else 500 <= before < DOCUMENTS

    report = await target.sync(store, KINDS)
    assert await target.rows() == await expected(store, fields=KINDS["issue"])
    if target.name in ("duckdb", "postgres"):
        assert report.written == DOCUMENTS - before
    else:
        assert [path.name for path in target.file().parent.iterdir()] == [target.file().name]


async def test_a_file_written_by_another_process_is_locked(store: DocumentStore, tmp_path: Path) -> None:
    async with open_target("duckdb", tmp_path) as target:
        process = await stopped(tmp_path, "rows", target)
        with pytest.raises(SyncFailed, match="Close the other process"):
            await target.sync(store, KINDS)
        process.kill()
        await process.communicate()
        await target.sync(store, KINDS)
