"""Processes that start at the same moment, with nothing there yet, agree on everything that is made once."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tests.servers.sql import empty_database
from tests.servers.valkey import ValkeyServer
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, Sizes, WorldShape

ROOT = Path(__file__).parents[2]
PROCESSES = 10
ROUNDS = {"folder": 2, "servers": 1}
WITHIN_S = 120


@asynccontextmanager
async def nothing_there(place: str, folder: Path) -> AsyncGenerator[dict[str, str]]:
    """An empty data folder; for `servers` also an empty PostgreSQL database and a Valkey server without data."""
    environment = {**os.environ, "TIDEGATE_DATA_DIR": str(folder)}
    if place == "folder":
        yield environment
        return
    async with empty_database("postgres", folder) as database_url:
        with ValkeyServer() as server:
            yield environment | {
                "TIDEGATE_DATABASE_URL": database_url,
                "TIDEGATE_VALKEY_URL": server.url,
                "TIDEGATE_AUTO_MIGRATE": "true",
            }


@asynccontextmanager
async def started(logins: Iterable[str], environment: dict[str, str]) -> AsyncGenerator[list[WarmProcess]]:
    """One process for each login, none of which outlives the block."""
    processes = list[WarmProcess]()
    try:
        for login in logins:
            command = (sys.executable, "-m", "tests.runtime.starting_together", login)
            processes.append(await start_warm(*command, env=environment, cwd=ROOT, stdin=PIPE, stdout=PIPE))
        yield processes
    finally:
        for process in processes:
            process.kill()
            await process.communicate()


async def step(processes: list[WarmProcess]) -> list[str]:
    """Wait until every process has reported its next step, then release all of them together."""
    reports = list[str]()
    for process in processes:
        assert process.stdout is not None
        reports.append((await process.stdout.readline()).decode().strip())
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
    return reports


@pytest.mark.race
@pytest.mark.parametrize("place", ["folder", "servers"])
async def test_ten_processes_started_together_complete_the_work_once(place: str, tmp_path: Path):
    world = WorldShape(users=PROCESSES, operators=1, repositories=1, sizes=Sizes(issues=2), events=1, quirks=False)
    async with GithubSimulator(SimulatorConfig(world=world)) as sim:
        ours = {"TIDEGATE_GITHUB__API_URL": sim.url, "GITHUB_TOKEN": sim.token_of(sim.world.operators()[0])}
        for number in range(ROUNDS[place]):
            async with (
                nothing_there(place, tmp_path / str(number) / "data") as environment,
                asyncio.timeout(WITHIN_S),
                started(sim.world.logins(), environment | ours) as processes,
            ):
                assert await step(processes) == ["loaded"] * PROCESSES
                assert await step(processes) == ["opened"] * PROCESSES
                reports = [json.loads(report) for report in await step(processes)]
                ends = [await process.wait() for process in processes]
            like_one = {"credentials": 1, "has_token": True, "status": "completed", "failed": 0}
            assert reports == [like_one] * PROCESSES
            assert ends == [0] * PROCESSES
