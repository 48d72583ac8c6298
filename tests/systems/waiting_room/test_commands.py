"""`tidegate room`, as a user runs it; in this process."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate.app.cli import app
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.telemetry.logs import configure_logs
from tidegate.systems.waiting_room import RoomExists, RoomInUse

Tidegate = Callable[..., Result]


@pytest.fixture
def tidegate(tmp_path: Path, embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tidegate]:
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TIDEGATE_VALKEY_URL", embedded_url)
    monkeypatch.setenv("TIDEGATE_KEY_PREFIX", tmp_path.name)
    yield lambda *arguments: CliRunner().invoke(app, ["room", *arguments])
    configure_logs(level="warning")


def told(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_room_is_created_opened_entered_shown_and_closed(tidegate: Tidegate):
    assert "There are no rooms" in tidegate("status").stdout
    made = told(tidegate("create", "sale", "--capacity", "5", "--rate", "2", "--json"))
    assert (made["state"], made["seed"]) == ("closed", None)
    planned = told(tidegate("open", "sale", "--at", "2999-12-24T12:00:00+09:00", "--json"))
    assert (planned["state"], planned["opens_at"], planned["seed"]) == ("open", "2999-12-24T03:00:00Z", None)
    assert "2999" in tidegate("status", "sale").stdout
    opened = told(tidegate("open", "sale", "--json"))
    assert opened["commitment"] == made["commitment"]
    assert opened["seed"] is not None
    assert told(tidegate("admit", "sale", "ada", "bob", "--json")) == {"admitted": 2}
    assert "0 users admitted" in tidegate("admit", "sale", "ada").stdout

    shown = tidegate("status").stdout

    assert "sale: open" in shown
    assert "0 of 5, and 2 beside the capacity, 2 per second" in shown
    assert "sale: closed" in tidegate("close", "sale").stdout
    assert isinstance(tidegate("delete", "sale").exception, RoomInUse)
    assert "sale: deleted" in tidegate("delete", "sale", "--force").stdout
    assert "There are no rooms" in tidegate("status").stdout


def test_a_change_keeps_the_options_that_are_not_given(tidegate: Tidegate):
    made = told(
        tidegate("create", "sale", "--capacity", "5", "--rate", "2", "--entrance", "/in", "--anonymous", "--json")
    )

    more = told(tidegate("alter", "sale", "--capacity", "9", "--title", "Spring", "--json"))
    less = told(
        tidegate("alter", "sale", "--rate", "0", "--entrance", "", "--no-anonymous", "--session", "60", "--json")
    )

    assert isinstance(made["plan"], dict)
    assert more["plan"] == {**made["plan"], "capacity": 9, "title": "Spring"}
    changed = {"admit_per_second": None, "entrance": None, "anonymous": False, "session": "PT60S"}
    assert isinstance(more["plan"], dict)
    assert less["plan"] == {**more["plan"], **changed}


def test_a_change_without_options_lists_the_options(tidegate: Tidegate):
    said = tidegate("alter", "sale")
    told = _options(said.output.partition("give at least one of")[2])
    offered = _options(tidegate("alter", "--help").output)

    assert said.exit_code == 2
    assert told == offered - {"--json", "--help"}


def test_rooms_are_listed_with_local_start_times(tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch):
    assert "There are no rooms" in tidegate("list").stdout
    for room in ("sale", "evening"):
        tidegate("create", room, "--capacity", "5")
    tidegate("open", "sale", "--at", "2999-12-24T12:00:00+09:00")
    for zone, start in (("UTC", "2999-12-24 03:00 UTC"), ("KST-9", "2999-12-24 12:00 KST")):
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TZ", zone)
            time.tzset()
            said = tidegate("list").stdout
        time.tzset()
        assert said.splitlines() == ["evening: closed", f"sale: visitors can join; starts at {start}"]
    assert [each["name"] for each in json.loads(tidegate("list", "--json").stdout)] == ["evening", "sale"]


def _options(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("open", "nowhere"), NotFound),
        (("open", "nowhere", "--at", "tomorrow"), InvalidArgument),
        (("open", "nowhere", "--at", "2999-01-01"), InvalidArgument),
        (("create", "a|b", "--capacity", "1"), InvalidArgument),
        (("create", "a", "--capacity", "1", "--entrance", "//b"), InvalidArgument),
        (("alter", "nowhere", "--capacity", "1"), NotFound),
    ],
)
def test_impossible_operations_are_refused_with_the_reason(
    tidegate: Tidegate, arguments: tuple[str, ...], error: type[Exception]
):
    assert isinstance(tidegate(*arguments).exception, error)


def test_a_name_is_unique(tidegate: Tidegate):
    tidegate("create", "sale", "--capacity", "5")
    assert isinstance(tidegate("create", "sale", "--capacity", "6").exception, RoomExists)
