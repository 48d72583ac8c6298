"""An export that is killed, interrupted, or finds the disk full leaves no file by half under its name."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.cli.test_commands import environment
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_file
from tests.storage.documents.export.reading import manifest_of, verify
from tests.storage.documents.harness import issue
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.documents.export.exporter import ExportRequest, export
from tidegate.storage.documents.export.formats import Format
from tidegate.storage.documents.sql import SqlDocumentStore
from tidegate.storage.sql import Database
from tidegate.systems.github.kinds import COLUMNS

pytestmark = pytest.mark.crash

DOCUMENTS = 4000


@pytest.fixture
async def documents(tmp_path: Path):
    """The store of an installation, where the command finds it."""
    (tmp_path / "data").mkdir()
    async with await Database.open(await migrated_file(tmp_path / "data" / "tidegate.db")) as database:
        store = SqlDocuments(database).of("github")
        staged = await store.stage(
            [
                issue(f"{number:05}", kind=kind, title="t" * 100)
                for kind in ("issue", "commit")
                for number in range(DOCUMENTS)
            ]
        )
        await database.transaction(staged.apply)
        yield store


async def started(folder: Path, moment: str, form: Format) -> WarmProcess:
    """The command, stopped at its `moment`."""
    process = await start_warm(
        *(sys.executable, "-m", "tests.storage.documents.export.interrupted", moment),
        *("export", "--format", form, "--output", str(folder / "out"), "--kind", "issue", "--kind", "commit"),
        stdout=PIPE,
        stderr=PIPE,
        env=environment(folder),
    )
    assert process.stdout
    assert await process.stdout.readline() == f"{moment}\n".encode()
    return process


def whole(folder: Path) -> list[str]:
    """The files under names that a reader would look for."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("form", [Format.CSV, Format.PARQUET])
async def test_a_kill_during_a_file_leaves_no_file_and_the_next_export_cleans_up(
    documents: SqlDocumentStore, tmp_path: Path, form: Format
):
    process = await started(tmp_path, "file", form)
    process.kill()
    await process.communicate()
    assert whole(tmp_path / "out") == []
    assert len(list((tmp_path / "out").iterdir())) == 1, "the file that was being written"

    await export(documents, tmp_path / "out", ExportRequest(format=form, kinds={"issue": COLUMNS["issue"]}))

    assert verify(tmp_path / "out")["documents"] == DOCUMENTS


async def test_a_kill_during_a_file_leaves_an_older_export_unchanged(documents: SqlDocumentStore, tmp_path: Path):
    before = await export(
        documents, tmp_path / "out", ExportRequest(format=Format.CSV, kinds={"issue": (), "commit": ()})
    )
    process = await started(tmp_path, "file", Format.CSV)
    process.kill()
    await process.communicate()

    assert manifest_of(tmp_path / "out")["files"][0]["sha256"] == before.files[0].sha256
    for leftover in (tmp_path / "out").glob(".*"):
        leftover.unlink()
    verify(tmp_path / "out")


async def test_a_kill_between_two_renames_leaves_whole_files_and_a_manifest_marked_incomplete(
    documents: SqlDocumentStore, tmp_path: Path
):
    old = await export(documents, tmp_path / "out", ExportRequest(format=Format.CSV, kinds={"issue": (), "event": ()}))
    process = await started(tmp_path, "names", Format.JSONL)
    process.kill()
    await process.communicate()

    assert whole(tmp_path / "out") == ["event.csv", "issue.csv", "issue.jsonl", "manifest.json"]
    manifest = manifest_of(tmp_path / "out")
    assert not manifest["complete"]
    assert manifest["placed"] == ["commit.jsonl", "event.csv", "issue.csv", "issue.jsonl"]
    assert (tmp_path / "out" / "issue.jsonl").stat().st_size == manifest["files"][0]["bytes"]
    assert (tmp_path / "out" / "issue.csv").stat().st_size == old.files[0].bytes

    await export(documents, tmp_path / "out", ExportRequest(format=Format.PARQUET, kinds={"issue": ()}))

    verify(tmp_path / "out")  # nothing of the older ones is left


async def test_an_export_interrupted_by_the_user_leaves_nothing(documents: SqlDocumentStore, tmp_path: Path):
    process = await started(tmp_path, "file", Format.PARQUET)
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()

    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", list(Format))
async def test_a_full_disk_is_reported_and_leaves_nothing(documents: SqlDocumentStore, tmp_path: Path, form: Format):
    tidegate = Path(sys.executable).with_name("tidegate")
    # As good as a full disk: no file may become larger than 8 kB.
    process = await asyncio.create_subprocess_exec(
        "bash",
        *("-c", 'ulimit -f 8; exec "$0" "$@"', str(tidegate), "export", "--format", form, "--kind", "issue"),
        *("--output", str(tmp_path / "out")),
        stdout=PIPE,
        stderr=PIPE,
        env=environment(tmp_path),
    )
    _, err = await process.communicate()

    assert process.returncode == 1, err
    assert b"File too large" in err
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err
    assert not (tmp_path / "out").exists()
