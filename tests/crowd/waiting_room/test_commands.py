"""`tidegate room`, as a user runs it; in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app
from tidegate.crowd.waiting_room import RoomExists
from tidegate.kernel.errors import InvalidArgument, NotFound
from tidegate.telemetry.logs import configure

Tidegate = Callable[..., Result]


@pytest.fixture
def tidegate(tmp_path: Path, embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tidegate]:
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TIDEGATE_VALKEY_URL", embedded_url)
    monkeypatch.setenv("TIDEGATE_KEY_PREFIX", tmp_path.name)
    yield lambda *arguments: CliRunner().invoke(app, ["room", *arguments])
    configure(level="warning")


def told(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_room_is_made_opened_entered_looked_at_and_closed(tidegate: Tidegate):
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
    assert "0 users let in" in tidegate("admit", "sale", "ada").stdout

    shown = tidegate("status").stdout

    assert "sale: open" in shown
    assert "0 of 5, and 2 beside the capacity, 2 per second" in shown
    assert "sale: closed" in tidegate("close", "sale").stdout


def test_a_room_is_changed_in_what_is_named_and_in_nothing_else(tidegate: Tidegate):
    made = told(
        tidegate("create", "sale", "--capacity", "5", "--rate", "2", "--entrance", "/in", "--anybody", "--json")
    )

    more = told(tidegate("alter", "sale", "--capacity", "9", "--title", "Spring", "--json"))
    less = told(tidegate("alter", "sale", "--rate", "0", "--entrance", "", "--nobody", "--session", "60", "--json"))

    assert isinstance(made["plan"], dict)
    assert more["plan"] == {**made["plan"], "capacity": 9, "title": "Spring"}
    changed = {"admit_per_second": None, "entrance": None, "anybody": False, "session": "PT60S"}
    assert isinstance(more["plan"], dict)
    assert less["plan"] == {**more["plan"], **changed}
    assert isinstance(tidegate("alter", "sale").exception, InvalidArgument)


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
def test_what_cannot_be_done_is_said(tidegate: Tidegate, arguments: tuple[str, ...], error: type[Exception]):
    assert isinstance(tidegate(*arguments).exception, error)


def test_a_name_is_given_once(tidegate: Tidegate):
    tidegate("create", "sale", "--capacity", "5")
    assert isinstance(tidegate("create", "sale", "--capacity", "6").exception, RoomExists)
