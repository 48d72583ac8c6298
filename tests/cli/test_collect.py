"""`tidegate collect` against the simulator, in a process of its own."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.cli.test_commands import Ended, environment, tidegate
from tidegate.simulators.github import GithubSimulator, LimitSettings, Manners, SimulatorConfig, WorldShape

SMALL = WorldShape(users=2, repositories=3, quirks=False)


def simulator(**changes: object) -> GithubSimulator:
    return GithubSimulator(SimulatorConfig(world=SMALL, **changes))  # pyright: ignore[reportArgumentType]


async def collect(folder: Path, sim: GithubSimulator, *arguments: str) -> Ended:
    token = sim.token_of(sim.world.operators()[0])
    return await tidegate(
        folder, "collect", *sim.world.logins(), "--api-url", sim.url, "--json", *arguments, GITHUB_TOKEN=token
    )


async def test_it_collects_and_the_second_time_spends_nothing(tmp_path: Path):
    async with simulator() as sim:
        first = await collect(tmp_path, sim)
        spent = sim.report().spent
        second = await collect(tmp_path, sim)

        assert (first.code, second.code) == (0, 0), first.err + second.err
        assert all(run["status"] == "completed" for run in json.loads(first.out)["runs"])
        assert sim.report().spent == spent
        assert sim.token_of(sim.world.operators()[0]) not in first.out + first.err


async def test_a_collection_that_was_interrupted_goes_on_with_the_same_command(tmp_path: Path):
    async with simulator(manners=Manners(latency_ms=150), limits=LimitSettings(quota=1000)) as sim:
        command = (
            str(Path(sys.executable).with_name("tidegate")),
            *("collect", *sim.world.logins(), "--api-url", sim.url, "--json"),
        )
        token = sim.token_of(sim.world.operators()[0])
        process = await asyncio.create_subprocess_exec(
            *command, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=environment(tmp_path, GITHUB_TOKEN=token)
        )
        while sim.report().calls < 3:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert process.returncode == 130, err
        assert not json.loads(out)["complete"]

        ended = await collect(tmp_path, sim)

        assert ended.code == 0, ended.err
        assert {run["id"] for run in json.loads(ended.out)["runs"]} == {run["id"] for run in json.loads(out)["runs"]}
        assert max(sim.report().by_status) == "200"


async def test_without_a_token_it_says_what_to_set(tmp_path: Path):
    ended = await tidegate(tmp_path, "collect", "octocat", GITHUB_TOKEN="")

    assert ended.code == 1
    assert "GITHUB_TOKEN" in ended.err
