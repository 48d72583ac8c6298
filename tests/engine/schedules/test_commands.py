"""`tidegate schedules`, as a user runs it; in this process, because most of a command's time is its start."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.systems.github.deployment import CALM, SMALL
from tidegate.app.cli import app
from tidegate.core.telemetry.logs import configure_logs
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

Tidegate = Callable[..., Result]
WORLD = WorldShape(users=1, repositories=1, sizes=SMALL, events=1, quirks=False)


@pytest.fixture
def tidegate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tidegate]:
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    yield lambda *arguments: CliRunner().invoke(app, ["schedules", *arguments])
    configure_logs(level="warning")  # the command had the log written to where the runner listened


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


def test_logins_are_read_from_a_file_or_standard_input(tmp_path: Path, tidegate: Tidegate):
    (tmp_path / "team").write_text("# the team\nada\n\n@Bob  # since May\n")
    cron = ("--cron", "0 3 * * *", "--json")

    named = tidegate("add", "ada", "--file", str(tmp_path / "team"), *cron)
    piped = CliRunner().invoke(app, ["schedules", "add", "--file", "-", *cron], input="cleo\n")
    nobody = CliRunner().invoke(app, ["schedules", "add", "--file", "-", *cron], input="\n")
    missing = tidegate("add", "--file", str(tmp_path / "nothing"), *cron)

    assert [each["login"] for each in json.loads(named.stdout)["schedules"]] == ["ada", "bob"]
    assert [each["login"] for each in json.loads(piped.stdout)["schedules"]] == ["cleo"]
    assert (nobody.exit_code, missing.exit_code) == (2, 2)
    assert "at least one subject" in nobody.stderr
    assert "nothing cannot be read" in missing.stderr


def test_invalid_schedules_are_reported_and_change_nothing(tidegate: Tidegate):
    wrong = tidegate("add", "ada", "--cron", "61 3 * * *")
    tidegate("add", "ada", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    half = tidegate("remove", "1", "7")
    listed = tidegate("list")

    assert (wrong.exit_code, half.exit_code, listed.exit_code) == (1, 1, 0)
    assert "bad minute" in str(wrong.exception)
    assert "there is no schedule 7" in str(half.exception)
    assert "03:00 CE" in listed.stdout, "shown by the clocks of its time zone"


def test_an_empty_list_shows_how_to_add_a_schedule(tidegate: Tidegate):
    assert "schedules add LOGIN --cron" in tidegate("list").stdout
    assert "There are no schedules for ada" in tidegate("list", "--login", "ada").stdout


async def test_a_schedule_is_triggered_once_for_each_key(tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch):
    async with GithubSimulator(SimulatorConfig(world=WORLD, behaviour=CALM)) as sim:
        login, *_ = sim.world.logins()
        monkeypatch.setenv("TIDEGATE_GITHUB__API_URL", sim.url)
        monkeypatch.setenv("GITHUB_TOKEN", sim.token_of(sim.world.operators()[0]))

        def commands() -> list[Result]:
            tidegate("add", login, "--cron", "0 3 * * *")
            trigger = ("trigger", "1", "--key", "order-1")
            return [tidegate(*trigger), tidegate(*trigger, "--json"), tidegate("trigger", "1")]

        first, again, unnamed = await asyncio.to_thread(commands)

    assert [each.exit_code for each in (first, again, unnamed)] == [0, 0, 0], first.output
    assert first.stdout == "begun order-1: run 1\n"
    assert (json.loads(again.stdout)["outcome"], json.loads(again.stdout)["run_id"]) == ("begun", 1)
    assert unnamed.stdout.startswith("skipped 2")
    assert "has an active run already: 1" in unnamed.stdout


def test_a_refused_trigger_is_reported(tidegate: Tidegate):
    tidegate("add", "ada", "--cron", "0 3 * * *")
    unserved = tidegate("trigger", "1")
    tidegate("pause", "1")
    paused, unknown = tidegate("trigger", "1"), tidegate("trigger", "7")

    assert [each.exit_code for each in (unserved, paused, unknown)] == [1, 1, 1]
    assert "no valid credential" in str(unserved.exception)
    assert "is paused; resume it" in str(paused.exception)
    assert "there is no schedule 7" in str(unknown.exception)
