"""The guide to snapshots: its commands and requests are made, and its kind runs."""

import json
import re
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from examples.own_kind import WeatherStation, main
from multidict import CIMultiDict, CIMultiDictProxy
from typer.testing import CliRunner

from tests.cli.batch import tidegate_each
from tests.docs.pages import ROOT, Block, blocks_of
from tests.http.processes import started
from tests.http.serving import Client, read_events
from tests.http.test_guide import Shown, assert_fits, request_of, shown_in
from tests.systems.snapshots.deployment import game, until
from tidegate.app.cli import app
from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.upstream import Answer
from tidegate.systems.snapshots.kinds import by_name, load_kind
from tidegate.systems.snapshots.model import FoundSubject, MissingSubject, SnapshotKind, UnreadableAnswer
from tidegate_simulators.game import FaultKind, GameSimulator

GUIDE = ROOT / "docs" / "guides" / "snapshots.md"
OF_HTTP = ROOT / "docs" / "guides" / "http.md"
EXAMPLE = ROOT / "examples" / "own_kind.py"
CODE = [block for block in blocks_of(GUIDE) if block.language == "py"]
STATION = WeatherStation("http://office.example", api_key="k")


@pytest.mark.parametrize("block", CODE, ids=lambda block: block.place)
def test_the_code_of_the_guide_equals_the_example(block: Block):
    assert block.text in EXAMPLE.read_text()


def test_the_guide_shows_the_complete_kind_in_about_forty_lines():
    text = EXAMPLE.read_text()
    kind = text[text.index("class Measured(") : text.index("LIMITS =")]
    lines = [line for line in kind.splitlines() if line.strip()]

    assert [line for line in lines if line not in "".join(block.text for block in CODE)] == []
    assert len([line for line in lines if '"""' not in line]) <= 40


@pytest.mark.full
async def test_the_example_prints_the_output_of_the_guide(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    [expected] = [block.text for block in blocks_of(GUIDE) if block.language == "text"]

    await main(str(tmp_path))

    assert capsys.readouterr().out == expected


def answer(body: object, status: int = 200) -> Answer:
    return Answer(
        status=status,
        headers=CIMultiDictProxy(CIMultiDict[str]()),
        url="http://office.example/stations/101",
        received_at=datetime.now(UTC),
        body=msgspec.json.encode(body),
        elapsed_ms=1.0,
    )


def test_the_kind_requests_by_name_first_and_then_by_id():
    kind: SnapshotKind = STATION

    assert kind.request("harbour", None).url == "http://office.example/stations?name=harbour"
    assert kind.request("harbour", "101").url == "http://office.example/stations/101"
    with pytest.raises(InvalidArgument, match="by its name"):
        kind.request("17", None)


def test_the_same_measurement_has_the_same_bytes_for_every_server():
    measured = {"celsius": 1.5, "wind": 3.0}
    found = [
        STATION.read("harbour", answer({"number": 101, "name": "harbour", "measured": measured, "served_by": desk}))
        for desk in ("a", "b")
    ]

    assert found == [FoundSubject(b'{"celsius":1.5,"wind":3.0}', identity="harbour", upstream_id="101")] * 2
    assert isinstance(STATION.read("harbour", answer({}, status=404)), MissingSubject)
    with pytest.raises(UnreadableAnswer, match="harbour"):
        STATION.read("harbour", answer([]))


@asynccontextmanager
async def at_work(folder: Path, sim: GameSimulator) -> AsyncGenerator[tuple[Client, dict[str, str]]]:
    """The game and `tidegate up` of the guide, on other ports."""
    variables = {
        "TIDEGATE_SNAPSHOTS__GAME__URL": sim.url,
        "TIDEGATE_SNAPSHOTS__GAME__API_KEY": sim.api_key,
        "TIDEGATE_LIMITER__QUIET_START": "0s",
    }
    async with started(folder, "up", "--port", "0", **variables) as server, aiohttp.ClientSession() as session:
        yield Client(session, server.url), variables


def alike(text: str) -> str:
    """Without what differs from one time to the next."""
    return re.sub(r"\d[\d,.:-]*", "N", text)


def commands(words: str) -> list[Shown]:
    return [each for each in shown_in(GUIDE, "tidegate") if shlex.join(each.words).startswith(f"tidegate {words}")]


@pytest.mark.full
async def test_the_commands_of_the_guide_print_its_output(tmp_path: Path):
    async with game() as sim:
        sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=13)
        async with at_work(tmp_path, sim) as (client, variables):
            await client.post("/v1/snapshots/character/13/refresh")
            [letter] = await until(lambda: dead_letters(client))
            shown = [*commands("snapshots get"), *commands("snapshots refresh"), *commands("snapshots dead")]
            arguments = [shlex.join(each.words[1:]) for each in shown]
            arguments[-1] = f"snapshots dead replay {letter['id']}"
            ended = await tidegate_each(tmp_path, *arguments, **variables)
            for each, told in zip(shown, ended, strict=True):
                assert alike(told.out) == alike("\n".join(each.output) + "\n"), each.words

            await make_requests(client, shown_in(GUIDE, "curl"))
            others = [each for each in shown_in(OF_HTTP, "curl") if "/v1/snapshots/" in each.words[-1]]
            assert len(others) >= 5, "the search finds too little"
            await make_requests(client, [subject(each, "4712") for each in others])


async def dead_letters(client: Client) -> list[Any]:
    return (await client.get("/v1/snapshots/dead")).json["letters"]


def subject(shown: Shown, key: str) -> Shown:
    """The same for another subject, of which nothing is known yet."""
    return Shown([word.replace("4711", key) for word in shown.words], shown.output)


async def make_requests(client: Client, requests: Sequence[Shown]) -> None:
    for each in requests:
        method, path, body, headers = request_of(each.words)
        async with client.session.request(method, client.url + path, data=body, headers=headers) as reply:
            assert reply.status in (200, 202), path
            if path.endswith("/events"):
                first = await anext(read_events(reply))
                assert f"event: {first.kind}" in each.output
                assert_fits(json.loads(each.output[-1].removeprefix("data: ")), first.data)
            else:
                assert_fits(json.loads(each.output[0]), json.loads(await reply.read()))


def test_a_kind_from_the_settings_is_known_to_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    [exported] = [each for each in shown_in(GUIDE, "export") if "KINDS" in each.words[1]]
    kinds = exported.words[1].partition("=")[2]
    monkeypatch.syspath_prepend(ROOT / "examples")
    for name, value in {
        "TIDEGATE_SNAPSHOTS__KINDS": kinds,
        "WEATHER_URL": "http://127.0.0.1:1",
        "WEATHER_KEY": "k",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path))

    known, unknown, nonsense = (
        CliRunner().invoke(app, ["snapshots", "get", subject])
        for subject in ("weather/harbour", "character/7", "weather/7")
    )
    configure_logs(level="warning")  # the commands had it written where nobody listens any more

    assert "weather/harbour: UPDATING" in known.stdout
    assert "start `tidegate up`" in known.stdout, "nobody works, and whoever asks is told so"
    assert "no kind 'character'; the configured kinds are weather" in str(unknown.exception)
    assert "a station is identified by its name" in str(nonsense.exception)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("no_such_module:Kind", "no module is called no_such_module"),
        ("examples.own_kind:Nobody", "has no attribute 'Nobody'"),
        ("examples.own_kind:Office", "is no kind of snapshots: it has no name, ttl, request, read"),
        ("examples.own_kind:from_environment", "KeyError: 'WEATHER_URL'"),
    ],
)
def test_a_kind_that_cannot_be_loaded_is_named_with_the_reason(
    place: str, reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WEATHER_URL", raising=False)

    with pytest.raises(InvalidSettings, match="TIDEGATE_SNAPSHOTS__KINDS") as told:
        load_kind(place)

    assert reason in str(told.value)


@pytest.mark.parametrize("names", [["dead"], ["a/b"], ["weather", "weather"]])
def test_a_kind_whose_name_is_unsuitable_for_urls_is_refused(names: list[str]):
    kinds = [WeatherStation("http://office.example", api_key="k") for _ in names]
    for kind, name in zip(kinds, names, strict=True):
        kind.name = name

    with pytest.raises(InvalidSettings, match="kind"):
        by_name(kinds)
