"""`tidegate export`, as a user runs it; in this process, because most of a command's time is its start."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from typer.testing import CliRunner, Result

from tests.cli.test_commands import environment
from tests.servers.migrated import migrated_file
from tests.storage.documents.export.reading import read_rows, verify
from tests.storage.documents.harness import issue
from tidegate.app.cli import app
from tidegate.core.telemetry.logs import configure_logs
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.documents.export.formats import Format, installed_formats
from tidegate.storage.sql import Database
from tidegate.systems.github.kinds import COLUMNS

Tidegate = Callable[..., Result]


async def fill(data_dir: Path) -> None:
    data_dir.mkdir()
    async with await Database.open(await migrated_file(data_dir / "tidegate.db")) as database:
        written = {
            "github": [issue(f"{n}", owner=owner) for n, owner in enumerate(["ada", "bob", "ada"])],
            "bookshop": [issue("0", title="of the shop"), issue("b1", kind="book")],
        }
        for source, documents in written.items():
            staged = await SqlDocuments(database).of(source).stage(documents)
            await database.transaction(staged.apply)


@pytest.fixture
def tidegate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tidegate]:
    uvloop.run(fill(tmp_path / "data"))
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    yield lambda *arguments: CliRunner().invoke(app, ["export", *arguments])
    configure_logs(level="warning")  # the command had the log written to where the runner listened


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_all_documents_are_exported_and_the_files_are_listed(tidegate: Tidegate, tmp_path: Path, form: str):
    ended = tidegate("--format", form, "--output", "out")

    assert ended.exit_code == 0, ended.output
    assert "3 documents" in ended.stdout
    assert {file["kind"] for file in verify(tmp_path / "out")["files"]} == COLUMNS.keys()
    assert [row["id"] for row in read_rows(tmp_path / "out", "issue")] == ["0", "1", "2"]


def test_the_manifest_is_printed_as_json(tidegate: Tidegate, tmp_path: Path):
    ended = tidegate(
        *(
            "--format",
            "csv",
            "--output",
            "out",
            "--kind",
            "issue",
            "--login",
            "@Ada",
            "--no-body",
            "--with-gone",
            "--json",
        )
    )

    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout) == verify(tmp_path / "out")
    assert [row["id"] for row in read_rows(tmp_path / "out", "issue")] == ["0", "2"]
    assert json.loads(ended.stdout)["with_gone"]
    assert "body" not in read_rows(tmp_path / "out", "issue")[0]


def test_documents_of_an_own_source_can_be_exported(tidegate: Tidegate, tmp_path: Path):
    ended = tidegate("--format", "parquet", "--output", "out", "--source", "bookshop")

    assert ended.exit_code == 0, ended.output
    assert [row["id"] for row in read_rows(tmp_path / "out", "book")] == ["b1"]
    (theirs,) = read_rows(tmp_path / "out", "issue")
    assert theirs["body"]["title"] == "of the shop"
    assert "github_id" not in theirs, "its issues do not have GitHub's columns"


def test_an_uncollected_kind_is_an_error(tidegate: Tidegate, tmp_path: Path):
    ended = tidegate("--format", "csv", "--output", "out", "--kind", "isue")

    assert ended.exit_code == 1
    assert "kind is 'isue': no documents of this kind; known kinds: " in str(ended.exception)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_foreign_files_is_refused_unless_forced(tidegate: Tidegate, tmp_path: Path):
    refused = tidegate("--format", "csv", "--output", "data")
    forced = tidegate("--format", "csv", "--output", "data", "--force")

    assert (refused.exit_code, forced.exit_code) == (1, 0)
    assert "--force" in str(refused.exception)
    assert (tmp_path / "data" / "tidegate.db").exists()


def test_an_unknown_format_is_a_command_line_error(tidegate: Tidegate):
    assert tidegate("--format", "xlsx", "--output", "out").exit_code == 2


@pytest.mark.full
def test_without_the_library_parquet_names_the_package_to_install(tidegate: Tidegate, tmp_path: Path):
    del tidegate
    without = "import sys; sys.modules['pyarrow'] = None; from tidegate.app.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", without, "export", "--format", "parquet", "--output", "out"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    needs = (
        'Parquet files need the library pyarrow: pip install "tidegate[parquet]". Without it there are csv and jsonl'
    )
    assert ended.stderr == f"tidegate: {needs}\n"
    assert not (tmp_path / "out").exists()


def test_only_documents_are_written_to_standard_output(tidegate: Tidegate, tmp_path: Path):
    lines = tidegate("--format", "jsonl", "--output", "-")
    table = tidegate("--format", "csv", "--output", "-", "--kind", "issue", "--no-body")

    assert (lines.exit_code, table.exit_code) == (0, 0), lines.output + table.output
    assert [json.loads(line)["id"] for line in lines.stdout.splitlines()] == ["0", "1", "2"]
    assert [row["id"] for row in csv.DictReader(table.stdout.splitlines())] == ["0", "1", "2"]
    assert (lines.stderr, table.stderr) == ("3 documents\n", "3 documents\n")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_empty_export_is_reported_on_standard_error(tidegate: Tidegate):
    ended = tidegate("--format", "jsonl", "--output", "-", "--kind", "commit")

    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "Nothing to export: " in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--format", "parquet"], "cannot be written to a stream"),
        (["--format", "csv"], "have different columns: give one kind, or use jsonl"),
        (["--format", "jsonl", "--json"], "--json cannot be combined with --output -"),
    ],
)
def test_options_that_do_not_fit_standard_output_are_refused(tidegate: Tidegate, arguments: list[str], reason: str):
    ended = tidegate(*arguments, "--output", "-")

    assert ended.exit_code != 0
    assert ended.stdout == ""
    assert reason in f"{ended.stderr}{ended.exception}"


def test_only_installed_formats_are_listed(monkeypatch: pytest.MonkeyPatch):
    assert installed_formats() == (Format.PARQUET, Format.CSV, Format.JSONL)

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert installed_formats() == (Format.CSV, Format.JSONL)
