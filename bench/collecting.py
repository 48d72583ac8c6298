"""`tidegate collect` of small repositories: the first run, and the same again when nothing changed.

There is little to collect, so what is measured is the start of the command, the registration of the token, the first
answers, and the end. The command runs as a user runs it: on SQLite and the embedded server.

    .venv/bin/python -m bench.collecting --turns 5 [--with OTHER/.venv/bin/tidegate]

compares two installations in turns.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.figures import Figure, Section
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

REPOSITORIES, TURNS = 20, 3
LATENCIES_MS = (5, 100)
FIRST_S, UNCHANGED_S = 2.5, 1.0
"""Targets, with the smallest latency."""
TIDEGATE = Path(sys.executable).with_name("tidegate")


@dataclass(frozen=True)
class Took:
    """What one command took."""

    wall_s: float
    cpu_s: float
    """Of the command and of the embedded server that it started."""


class OneCollection:
    """A command that collects all repositories of a simulated GitHub into a folder."""

    def __init__(self, github: GithubSimulator, folder: Path, *, tidegate: Path = TIDEGATE) -> None:
        operator = github.world.operators()[0]
        # With compiled files, as on a user's machine: without them each start compiles every module.
        left_out = ("TIDEGATE_", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        self.environment = inherited | {"TIDEGATE_DATA_DIR": str(folder), "GITHUB_TOKEN": github.token_of(operator)}
        names = [repository.full_name for repository in github.world.all_repositories()]
        self.command = (str(tidegate), "collect", *names, "--api-url", github.url, "--json")

    async def run(self) -> Took:
        """Run it, and measure."""
        began, cpu = time.monotonic(), _cpu_of_children_s()
        process = await asyncio.create_subprocess_exec(
            *self.command, env=self.environment, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
        )
        if await process.wait():
            raise RuntimeError(f"{' '.join(self.command)} ended with {process.returncode}")
        return Took(time.monotonic() - began, _cpu_of_children_s() - cpu)


async def measure() -> Section:
    figures = list[Figure]()
    for latency_ms in LATENCIES_MS:
        async with open_github(latency_ms=latency_ms) as github:
            taken = [await collect_twice(github) for _ in range(TURNS)]
        for n, (which, target) in enumerate((("first", FIRST_S), ("unchanged", UNCHANGED_S))):
            best = min((pair[n] for pair in taken), key=lambda took: took.wall_s)
            told, has_target = f"{best.wall_s:.1f} s, {best.cpu_s:.1f} s of CPU", latency_ms == min(LATENCIES_MS)
            figures.append(
                Figure(f"{which} run, answers take {latency_ms} ms", told, f"\u2264 {target} s", best.wall_s <= target)
                if has_target
                else Figure(f"{which} run, answers take {latency_ms} ms", told)
            )
    return Section(
        "Collect",
        figures,
        f"`tidegate collect` of {REPOSITORIES} repositories of a simulated GitHub, SQLite and the embedded server, the "
        f"best of {TURNS}; CPU with the embedded server's, without the simulator's.",
    )


@asynccontextmanager
async def open_github(*, latency_ms: float = min(LATENCIES_MS)) -> AsyncGenerator[GithubSimulator]:
    """A simulated GitHub with so many repositories, in this process."""
    config = SimulatorConfig(
        world=WorldShape(users=REPOSITORIES, repositories=1, operators=1, quirks=False),
        limits=LimitSettings(quota=100_000, points_per_minute=1_000_000, cpu_s_per_minute=1_000_000),
        behaviour=Behaviour(latency_ms=latency_ms),
    )
    async with GithubSimulator(config) as github:
        github.world.warm()
        yield github


async def collect_twice(github: GithubSimulator, *, tidegate: Path = TIDEGATE) -> tuple[Took, Took]:
    """The first run, and an unchanged one."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        collection = OneCollection(github, Path(folder), tidegate=tidegate)
        return await collection.run(), await collection.run()


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.collecting")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--latency-ms", type=float, default=min(LATENCIES_MS))
    parser.add_argument("--with", dest="others", type=Path, action="append", default=[], metavar="TIDEGATE")
    given = parser.parse_args()
    commands: Sequence[Path] = [TIDEGATE, *given.others]
    async with open_github(latency_ms=given.latency_ms) as github:
        for _ in range(given.turns):
            for command in commands:
                first, again = await collect_twice(github, tidegate=command)
                print(
                    f"{command}: first {first.wall_s:.2f} s, {first.cpu_s:.2f} s of CPU; "
                    f"unchanged {again.wall_s:.2f} s, {again.cpu_s:.2f} s of CPU",
                    flush=True,
                )


if __name__ == "__main__":
    uvloop.run(_main())
