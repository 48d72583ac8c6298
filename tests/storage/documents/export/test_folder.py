"""What an export does to its folder, and what it never does."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.storage.documents.export.reading import read_rows, verify
from tests.storage.documents.harness import StoreHarness, issue
from tidegate.storage.documents.export.exporter import ExportFailed, ExportProgress, ExportRequest, export
from tidegate.storage.documents.export.folder import ExportRefused
from tidegate.storage.documents.export.formats import Format

CSV = ExportRequest(format=Format.CSV, kinds={"issue": (), "pull": ()})
JSONL = ExportRequest(format=Format.JSONL, kinds={"issue": ()})


@pytest.fixture
async def filled(local: StoreHarness) -> StoreHarness:
    await local.write(*(issue(f"{number:04}") for number in range(600)))
    return local


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


async def test_the_folder_is_created(filled: StoreHarness, tmp_path: Path):
    await export(filled.store, tmp_path / "a" / "b", CSV)

    assert names(tmp_path / "a" / "b") == ["issue.csv", "manifest.json", "pull.csv"]


@pytest.mark.parametrize("thing", ["notes.txt", ".hidden", "issue.csv", "manifest.json"])
async def test_a_folder_with_other_files_is_refused_and_left_unchanged(
    filled: StoreHarness, tmp_path: Path, thing: str
):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / thing).write_text('{"name": "precious"}')

    with pytest.raises(ExportRefused, match="--force"):
        await export(filled.store, folder, CSV)

    assert names(folder) == [thing]
    assert (folder / thing).read_text() == '{"name": "precious"}'


async def test_with_force_other_files_are_kept_beside_the_export(filled: StoreHarness, tmp_path: Path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "notes.txt").write_text("precious")

    await export(filled.store, folder, CSV, force=True)
    await export(filled.store, folder, JSONL)  # an export by now

    assert names(folder) == ["issue.jsonl", "manifest.json", "notes.txt"]
    assert (folder / "notes.txt").read_text() == "precious"


async def test_an_older_export_is_replaced_completely(filled: StoreHarness, tmp_path: Path):
    await export(filled.store, tmp_path / "out", CSV)
    await filled.write(issue("9999"))

    await export(filled.store, tmp_path / "out", JSONL)

    assert verify(tmp_path / "out")["format"] == "jsonl"
    assert read_rows(tmp_path / "out", "issue")[-1]["id"] == "9999"


async def test_files_outside_the_folder_that_a_manifest_names_are_not_touched(filled: StoreHarness, tmp_path: Path):
    (tmp_path / "precious").write_text("1")
    await export(filled.store, tmp_path / "out", CSV)
    manifest = tmp_path / "out" / "manifest.json"
    said = json.loads(manifest.read_text()) | {"placed": ["../precious", "/etc/hostname", ".", "..", ""]}
    manifest.write_text(json.dumps(said))

    await export(filled.store, tmp_path / "out", JSONL)

    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("kind", ["a/b", "..", "a b", "ä"])
async def test_a_kind_that_is_invalid_as_a_file_name_is_refused(filled: StoreHarness, tmp_path: Path, kind: str):
    with pytest.raises(ExportRefused, match="cannot be the name of a file"):
        await export(filled.store, tmp_path / "out", ExportRequest(format=Format.CSV, kinds={kind: ()}))

    assert not (tmp_path / "out").exists()


async def test_an_older_export_is_kept_until_the_new_one_is_complete(filled: StoreHarness, tmp_path: Path):
    folder = tmp_path / "out"
    before = await export(filled.store, folder, CSV)
    await filled.write(issue("9999"))
    seen: list[bool] = []

    def look(_: ExportProgress) -> None:
        seen.append(json.loads((folder / "manifest.json").read_text())["finished_at"] is not None)
        assert (folder / "issue.csv").stat().st_size == before.files[0].bytes

    await export(filled.store, folder, CSV, on_progress=look)

    assert len(seen) > 3
    assert read_rows(folder, "issue")[-1]["id"] == "9999"


@pytest.mark.parametrize("form", list(Format))
async def test_a_failed_export_leaves_nothing(filled: StoreHarness, tmp_path: Path, form: Format):
    def fail(progress: ExportProgress) -> None:
        if progress.written:
            raise LookupError

    with pytest.raises(LookupError):
        await export(filled.store, tmp_path / "new", ExportRequest(format=form, kinds={"issue": ()}), on_progress=fail)
    assert not (tmp_path / "new").exists()

    await export(filled.store, tmp_path / "old", CSV)
    with pytest.raises(LookupError):
        await export(filled.store, tmp_path / "old", ExportRequest(format=form, kinds={"issue": ()}), on_progress=fail)
    assert verify(tmp_path / "old")["format"] == "csv"


async def test_a_cancelled_export_leaves_nothing(filled: StoreHarness, tmp_path: Path):
    halfway = asyncio.Event()
    exporting = asyncio.create_task(
        export(filled.store, tmp_path / "out", CSV, on_progress=lambda told: halfway.set() if told.written else None)
    )
    await halfway.wait()
    exporting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exporting

    assert not (tmp_path / "out").exists()


async def test_two_concurrent_exports_do_not_write_into_the_same_folder(filled: StoreHarness, tmp_path: Path):
    first = asyncio.create_task(export(filled.store, tmp_path / "out", CSV))
    second = asyncio.create_task(export(filled.store, tmp_path / "out", CSV))
    done = await asyncio.gather(first, second, return_exceptions=True)

    refused = [each for each in done if isinstance(each, ExportRefused)]
    assert len(refused) == 1
    assert "another export" in str(refused[0])
    verify(tmp_path / "out")


async def test_an_unusable_folder_is_reported_with_the_reason(filled: StoreHarness, tmp_path: Path):
    (tmp_path / "file").write_text("")

    for folder in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ExportFailed, match=str(folder)):
            await export(filled.store, folder, CSV)
