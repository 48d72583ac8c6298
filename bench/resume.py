"""`tidegate collect`, killed during a run with its whole process group, and started again: the calls that are repeated.

The simulator counts, and knows what a perfect collector spends. In flight are calls whose answers had not come, or had
come and were not committed: these jobs were claimed and not ended. They have to be done again, and no others.
"""

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from contextlib import closing
from pathlib import Path

from chaos.github import WatchedGithub

from bench.figures import Figure, Section
from tidegate_simulators.github import KINDS, Behaviour, LimitSettings, SimulatorConfig, WorldShape

USERS, LATENCY_MS = 6, 50
KILLED_AT = 0.5
"""The share of all calls that were made by then."""
TIDEGATE = Path(sys.executable).with_name("tidegate")


async def measure() -> Section:
    config = SimulatorConfig(
        world=WorldShape(users=USERS),
        limits=LimitSettings(quota=100_000, points_per_minute=1_000_000, cpu_s_per_minute=1_000_000),
        behaviour=Behaviour(latency_ms=LATENCY_MS),
    )
    async with WatchedGithub(config) as github:
        needed = github.perfect_calls(None, KINDS).total
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            killed = await _start(github, Path(folder))
            await github.until_arrived(int(KILLED_AT * needed), within_s=120)
            os.killpg(killed.pid, signal.SIGKILL)
            await killed.wait()
            before, unfinished = sum(github.report().spent.values()), _running(Path(folder))
            began = time.monotonic()
            resumed = await _start(github, Path(folder))
            await github.until_arrived(github.arrived + 1, within_s=60)
            first_call_s = time.monotonic() - began
            exit_code = await resumed.wait()
        report = github.report()
    # Each start asks once whose token it was given, which is no part of a collection.
    twice = sum(report.spent.values()) - report.by_route.get("self", 0) - needed
    return Section(
        "Resume",
        [
            Figure("calls spent before the kill, and needed in all", f"{before:,} of {needed:,}"),
            Figure(
                f"fetched twice; calls in flight at the kill: {unfinished}",
                f"{twice}",
                f"≤ {unfinished}",
                exit_code in (0, 1) and twice <= unfinished,
            ),
            Figure("from the second start to its first call, imports included", f"{first_call_s:.1f} s"),
            Figure("limits broken", f"{report.broken}", "0", report.broken == 0),
        ],
        f"{USERS} users, answers take {LATENCY_MS} ms, SQLite and the embedded server. Exit code {exit_code} "
        "(1: some repositories are refused by GitHub).",
    )


def _running(folder: Path) -> int:
    """Jobs that were claimed and not ended."""
    with closing(sqlite3.connect(folder / "tidegate.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM page_jobs WHERE status = 'running'").fetchone()
    return count


async def _start(github: WatchedGithub, folder: Path) -> Process:
    operator = github.world.operators()[0]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")} | {
        "TIDEGATE_DATA_DIR": str(folder),
        "TIDEGATE_GATE__PER_MINUTE": "100000",
        "GITHUB_TOKEN": github.token_of(operator),
    }
    command = [str(TIDEGATE), "collect", *github.world.logins(), "--api-url", github.url, "--kinds", "all", "--json"]
    return await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
