"""Processes as a user would run them, and what each of them takes of the machine."""

import asyncio
import json
import os
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

TIDEGATE = str(Path(sys.executable).parent / "tidegate")
_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_WITHIN_S = 40.0


@asynccontextmanager
async def running(*command: str, settings: Mapping[str, str] | None = None) -> AsyncGenerator["Running"]:
    """A command that prints one line of JSON when it is ready; it is asked to stop after the block."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, env={**inherited, **(settings or {})}
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)} did not start")
        yield Running(process, json.loads(line))
    finally:
        await _stop(process)


class Running:
    """One process that has started."""

    def __init__(self, process: Process, said: dict[str, Any]) -> None:
        self._process, self.said = process, said

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    async def line(self) -> bytes:
        """The next line of output."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def rest(self) -> bytes:
        """The output until the process ends on its own."""
        assert self._process.stdout is not None
        said = await self._process.stdout.read()
        if await self._process.wait():
            raise RuntimeError(f"a process ended with {self._process.returncode}")
        return said


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_WITHIN_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()


def allow_many_files() -> None:
    """Raise the limit of open files to its maximum, for this process and its children: a connection is a file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def cpu_s(pid: int) -> float:
    """The CPU time that a process has taken so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Meter:
    """What processes take from now on."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids, self._before = pids, {name: cpu_s(pid) for name, pid in pids.items()}

    def read(self) -> dict[str, float]:
        """The CPU seconds of each since the beginning."""
        return {name: cpu_s(pid) - self._before[name] for name, pid in self._pids.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies; `values` are in order."""
    return values[min(len(values) - 1, int(share * len(values)))]
