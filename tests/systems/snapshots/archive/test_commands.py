"""`tidegate snapshots history` and `tidegate snapshots prefetch`, as a user runs them; in this process."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.servers.migrated import migrated_file
from tests.systems.snapshots.archive.history_rows import body, harness_at
from tidegate.app.cli import app
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.logs import configure_logs
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage
from tidegate.systems.snapshots.model import SnapshotSubject

Tidegate = Callable[..., Result]
HERO = SnapshotSubject("character", "k 03")


@pytest.fixture
def tidegate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tidegate]:
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TIDEGATE_SNAPSHOTS__GAME__URL", "http://127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "40")  # a pipe has no width: lines are whole
    yield lambda *arguments: CliRunner().invoke(app, ["snapshots", *arguments])
    configure_logs(level="warning")


@pytest.fixture
def filled(tmp_path: Path) -> None:
    """A history of which the old is in the archive of the data folder."""

    async def fill() -> None:
        (tmp_path / "data").mkdir()
        async with harness_at(await migrated_file(tmp_path / "data" / "tidegate.db")) as harness:
            await harness.fill(keys=4, days=[45, 44, 2])
            assert await harness.move_all(ObjectStorage((tmp_path / "data" / "archive").as_uri())) == 16

    asyncio.run(fill())


@pytest.mark.usefixtures("filled")
def test_one_command_shows_history_including_the_archive(tidegate: Tidegate):
    shown = tidegate("history", HERO.id)
    told = [json.loads(line) for line in tidegate("history", HERO.id, "--json").stdout.splitlines()]

    assert shown.exit_code == 0, shown.output
    assert [line.split()[-1] for line in shown.stdout.splitlines()[1:]] == ["database", "archive", "archive"]
    assert [each["snapshot"] for each in told] == [json.loads(body(HERO, days)) for days in (2, 44, 45)]
    assert [each["isArchived"] for each in told] == [False, True, True]
    assert len(tidegate("history", HERO.id, "--json", "--limit", "2").stdout.splitlines()) == 2


@pytest.mark.usefixtures("filled")
def test_the_prefetch_command_shows_due_subjects_and_spent_calls(tidegate: Tidegate):
    shown = tidegate("prefetch", "--count")
    told = json.loads(tidegate("prefetch", "--json").stdout)

    assert shown.exit_code == 0, shown.output
    assert "0 of 18,000,000 calls spent (0%)" in shown.stdout
    assert "0 HOT, 0 WARM, 8 COLD" in shown.stdout
    assert (told["policy"], told["due_now"], told["counts"]) == ("tiers", 0, None)


def test_a_subject_without_history_is_reported(tidegate: Tidegate):
    nobody, nonsense = tidegate("history", "character/nobody"), tidegate("history", "character")

    assert (nobody.exit_code, nonsense.exit_code) == (1, 1)
    assert "no history of character/nobody" in nobody.stdout
    assert "set TIDEGATE_SNAPSHOTS__ARCHIVE__KEEP_HISTORY=true" in nobody.stdout
    assert isinstance(nonsense.exception, InvalidArgument)
