"""`tidegate snapshots`, and `tidegate up` that refreshes and answers."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from tests.http.serving import Client
from tests.processes import start_warm
from tests.systems.snapshots.deployment import Deployment, until
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.commands.snapshots import app
from tidegate_simulators.game import FaultKind, GameSimulator

Command = Callable[..., Coroutine[Any, Any, tuple[int, str]]]


def surroundings(folder: Path, sim: GameSimulator) -> dict[str, str]:
    return {
        "TIDEGATE_DATA_DIR": str(folder),
        "TIDEGATE_SNAPSHOTS__GAME__URL": sim.url,
        "TIDEGATE_SNAPSHOTS__GAME__API_KEY": sim.api_key,
        "TIDEGATE_LOG__LEVEL": "error",
    }


@pytest.fixture
def command(tmp_path: Path, embedded: Valkey, deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command on the servers of the deployment, in a thread with an event loop of its own."""
    for name, value in surroundings(tmp_path, deployment.sim).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIDEGATE_VALKEY_URL", embedded.url)

    async def run(*arguments: str) -> tuple[int, str]:
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        if isinstance(result.exception, Exception):
            raise result.exception
        return result.exit_code, result.output

    return run


async def test_get_and_refresh_show_the_results_of_workers(command: Command, deployment: Deployment):
    code, shown = await command("get", "character/7", "--json")
    assert (code, json.loads(shown)["freshness"]) == (1, "UPDATING")
    async with deployment.working():
        code, shown = await command("get", "character/7", "--wait", "20", "--json")
        assert (code, json.loads(shown)["snapshot"]["id"]) == (0, 7)
        before = json.loads(shown)["snapshot"]["version"]
        deployment.sim.change(7)
        code, shown = await command("refresh", "character/7", "--wait", "20", "--json")
        assert (code, json.loads(shown)["snapshot"]["version"]) == (0, before + 1)
        code, shown = await command("refresh", "character/7")
        assert (code, "queued, version" in shown) == (0, True)
        code, shown = await command("get", "character/7")
        assert (code, shown.startswith("character/7: FRESH: ")) == (0, True)


async def test_dead_letters_are_listed_shown_replayed_and_discarded(command: Command, deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.BAD_REQUEST, times=2, subject=8)
    async with deployment.working():
        code, shown = await command("refresh", "character/8", "--wait", "30")
        assert (code, "failed: UPSTREAM_4XX, the upstream answered 400" in shown) == (1, True)
        assert "not done within" not in shown
        _, shown = await command("dead", "list", "--json")
        letter = json.loads(shown)
        assert (letter["subjectId"], letter["reason"]) == ("character/8", "UPSTREAM_4XX")
        _, shown = await command("dead", "show", letter["id"])
        assert json.loads(shown) == letter
        _, shown = await command("dead", "replay", letter["id"], "--json")
        assert json.loads(shown)["outcome"] == "queued"
        await until(lambda: _another(deployment, letter["id"]))
        [again] = await deployment.snapshots.dead.list()
        assert "character/8  UPSTREAM_4XX" in (await command("dead", "list"))[1]
    await command("refresh", "character/8")  # nobody works, so its lock is held
    _, shown = await command("dead", "replay", again.id)
    assert shown.startswith(f"{again.id}: already processing, version ")
    assert shown.endswith("; the dead letter stays\n")
    assert (await command("dead", "drop", again.id))[0] == 0
    assert (await command("dead", "list"))[1] == "no dead letters\n"
    with pytest.raises(NotFound, match="no dead letter"):
        await command("dead", "drop", "17-0")
    with pytest.raises(InvalidArgument, match="no kind 'pirate'; the configured kinds are character"):
        await command("get", "pirate/7")


@pytest.mark.full
async def test_up_refreshes_and_answers(tmp_path: Path, sim: GameSimulator):
    arguments = ("-c", "from tidegate.app.cli import main; main()", "up", "--port", "0", "--json")
    environment = {**os.environ, **surroundings(tmp_path, sim)}
    process = await start_warm(sys.executable, *arguments, env=environment, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        url = json.loads(await process.stdout.readline())["url"]
        async with aiohttp.ClientSession() as session:
            reply = await Client(session, url).get("/v1/snapshots/character/7?wait=20")
        process.send_signal(signal.SIGTERM)
        out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()

    assert reply.json["freshness"] == "FRESH"
    assert json.loads(out)["is_clean"], (out, errors)


async def _another(deployment: Deployment, letter_id: str) -> bool:
    return [letter.id for letter in await deployment.snapshots.dead.list()] not in ([], [letter_id])
