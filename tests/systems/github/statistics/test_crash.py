"""A process killed with -9 when the statistics are there and the run is not complete."""

import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_folder
from tests.systems.github.deployment import SMALL
from tests.systems.github.statistics.collecting_process import POOL
from tests.systems.github.statistics.truth import PROMPT, assert_true
from tests.waiting import look_again, patience
from tidegate.connections import open_context
from tidegate.engine import runs
from tidegate.engine.lifecycle import RunState
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.source import Subject
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.sql import outbox
from tidegate.systems.github import CONVERSATIONS, GithubSource
from tidegate.systems.github.statistics import Statistics
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

ROOT = Path(__file__).parents[2]


async def start(data_dir: Path, sim: GithubSimulator, *, stops: bool) -> WarmProcess:
    (login,) = sim.world.logins()
    arguments = (str(data_dir), sim.url, sim.token_of(login), str(int(stops)))
    command = (sys.executable, "-m", "tests.systems.github.statistics.collecting_process", *arguments)
    return await start_warm(*command, stdout=PIPE, cwd=ROOT)


@pytest.mark.crash
async def test_a_run_whose_process_died_between_statistics_and_completion_is_completed_by_the_next(tmp_path: Path):
    config = SimulatorConfig(world=WorldShape(users=1, repositories=2, sizes=SMALL, events=9), behaviour=PROMPT)
    async with (
        GithubSimulator(config) as sim,
        open_context(Settings(data_dir=await migrated_folder(tmp_path))) as parts,
    ):
        (login,), database = sim.world.logins(), parts.database
        orchestrator = Orchestrator(database, parts.gate, {"github": GithubSource(sim.url, CONVERSATIONS)})
        run_id = await orchestrator.begin("github", Subject(user_id=login, login=login), pool=POOL)
        statistics = Statistics(database, SqlDocuments(database).of("github"))
        victim = await start(tmp_path, sim, stops=True)
        assert victim.stdout is not None
        assert await victim.stdout.readline() == f"computed {login}\n".encode()
        victim.kill()
        await victim.wait()
        assert (await database.read(runs.get, run_id)).status is RunState.FINALIZING
        await assert_true(statistics, sim, [login])

        successor = await start(tmp_path, sim, stops=False)
        async with patience():
            while (await database.read(runs.get, run_id)).status is not RunState.COMPLETED:
                await look_again()
        successor.terminate()
        assert await successor.wait() == 0

        await assert_true(statistics, sim, [login])
        assert await database.read(outbox.depth) == outbox.OutboxDepth(0, 0, None)
