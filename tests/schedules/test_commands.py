"""`tidegate schedules`, as a user runs it; in this process, because most of a command's time is its start."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app
from tidegate.telemetry.logs import configure

Tidegate = Callable[..., Result]


@pytest.fixture
def tidegate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tidegate]:
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    yield lambda *arguments: CliRunner().invoke(app, ["schedules", *arguments])
    configure(level="warning")  # the command had the log written to where the runner listened


def test_schedules_are_added_listed_paused_and_removed(tidegate: Tidegate):
    added = tidegate("add", "ada", "bob", "--cron", "0 3 * * *", "--json")
    paused = tidegate("pause", "2")
    resumed = tidegate("resume", "2", "--json")
    removed = tidegate("remove", "1")
    listed = tidegate("list", "--json")

    assert [each.exit_code for each in (added, paused, resumed, removed, listed)] == [0] * 5, added.output
    assert [each["login"] for each in json.loads(added.stdout)["schedules"]] == ["ada", "bob"]
    assert "paused" in paused.stdout
    assert json.loads(resumed.stdout)["schedules"][0]["next_at"].endswith("T03:00:00Z")
    assert "removed 1: ada" in removed.stdout
    assert [each["login"] for each in json.loads(listed.stdout)["schedules"]] == ["bob"]


def test_what_cannot_be_is_told_and_changes_nothing(tidegate: Tidegate):
    wrong = tidegate("add", "ada", "--cron", "61 3 * * *")
    tidegate("add", "ada", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    half = tidegate("remove", "1", "7")
    listed = tidegate("list")

    assert (wrong.exit_code, half.exit_code, listed.exit_code) == (1, 1, 0)
    assert "bad minute" in str(wrong.exception)
    assert "there is no schedule 7" in str(half.exception)
    assert "03:00 CE" in listed.stdout, "shown by the clocks of its time zone"


def test_without_any_the_list_says_how_to_add_one(tidegate: Tidegate):
    assert "schedules add LOGIN --cron" in tidegate("list").stdout
    assert "There are no schedules of ada" in tidegate("list", "--login", "ada").stdout
