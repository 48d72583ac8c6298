"""A full disk: one plain line, no loss, and the work continues when there is space again."""

import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.cli.test_collect import SMALL, collect, documents_of, simulator, token_of
from tests.cli.test_commands import environment
from tests.processes import WarmProcess, start_warm
from tests.servers.small_disk import small_disk
from tests.waiting import patience, until
from tidegate_simulators.github import Behaviour, GithubSimulator

SLOW = Behaviour(latency_ms=60)


async def start_collecting(folder: Path, sim: GithubSimulator, **variables: str) -> WarmProcess:
    command = (str(Path(sys.executable).with_name("tidegate")), "collect", *sim.world.logins(), "--api-url", sim.url)
    surroundings = environment(folder, GITHUB_TOKEN=token_of(sim), **variables)
    return await start_warm(*command, "--json", stdout=PIPE, stderr=PIPE, cwd=folder, env=surroundings)


async def line_about_space(process: WarmProcess, folder: Path) -> str:
    """The first line that the command prints."""
    assert process.stderr is not None
    async with patience():
        line = (await process.stderr.readline()).decode()
    assert f"no space left in {folder}: 0 MB free" in line
    return line


@pytest.mark.parametrize("full", ["everything", "only the server's file"])
async def test_a_full_disk_is_reported_once_and_work_resumes_when_there_is_space(tmp_path: Path, full: str):
    with small_disk(tmp_path / "small") as disk:
        elsewhere = {
            "TIDEGATE_DATABASE_URL": f"sqlite:///{tmp_path / 'tidegate.db'}",
            "TIDEGATE_AUTO_MIGRATE": "true",
        }
        async with simulator(SMALL, behaviour=SLOW) as sim:
            process = await start_collecting(disk.folder, sim, **({} if full == "everything" else elsewhere))
            await until(lambda: sim.report().calls >= 5)
            disk.fill()
            await line_about_space(process, disk.folder / "data")
            disk.free()
            async with patience():
                out, err = await process.communicate()

            assert process.returncode == 0, err
            summary = json.loads(out)
            assert (summary["complete"], summary["documents"]) == (True, documents_of(sim))
            assert [line for line in err.decode().splitlines() if "disk.freed" not in line] == []


async def test_ctrl_c_on_a_full_disk_ends_with_130_and_nothing_is_lost(tmp_path: Path):
    with small_disk(tmp_path / "small") as disk:
        async with simulator(SMALL, behaviour=SLOW) as sim:
            process = await start_collecting(disk.folder, sim)
            await until(lambda: sim.report().calls >= 5)
            disk.fill()
            await line_about_space(process, disk.folder / "data")
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            async with patience():
                assert b"Stopping: calls in progress finish" in await process.stderr.readline()
                process.send_signal(signal.SIGINT)
                out, err = await process.communicate()
            assert process.returncode == 130, err
            assert b"Traceback" not in err
            assert json.loads(out)["complete"] is False

            disk.free()
            ended = await collect(disk.folder, sim, "--json")

        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["documents"] == documents_of(sim)
