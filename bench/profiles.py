"""`make profile`: flame graphs of engine, worker, read path and `tidegate collect`, into `profiles/`.

    .venv/bin/python -m bench.profiles                        # all of them
    .venv/bin/python -m bench.profiles engine-postgres reads  # some

A flame graph shows where the Python processes spend their CPU time: the wider a frame, the more samples it was in. The
servers are other programs: `bench.engine` prints what each job costs them. See docs/guides/profiling.md.
"""

import argparse
import asyncio
import html
import re
import shutil
import signal
import sys
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.collecting import OneCollection, open_github
from bench.figures import Figure, Section, keep
from bench.server import tcp_server
from bench.snapshot_reads import read_continuously, serving

FOLDER = Path(__file__).parent.parent / "profiles"
ENGINE_TURNS, READ_S = 3, 10.0
_RATE = 200
"""Samples in a second."""
TOP = 5
_NOTE = (
    f"`make profile`: the {TOP} functions with the most samples of py-spy, those of their callees left out; {_RATE} "
    "samples in a second, of running threads."
)
_FRAME = re.compile(
    r'<title>([^<]*) \([\d,]+ samples, [\d.]+%\)</title><rect [^>]*y="(\d+)"[^>]*fg:x="(\d+)" fg:w="(\d+)"'
)
_NO_WORK = ("all", "thread (", "_worker (concurrent/futures/thread.py", "GuardedServer._listen (")
"""The root, the names of threads, and threads that wait for work or for a server, which py-spy takes for running."""
_LINE = re.compile(r":\d+\)$")
"""The line of a function in which a sample was taken."""


async def profile(names: Sequence[str]) -> None:
    """Make these profiles, one after the other, since each needs the machine for itself."""
    FOLDER.mkdir(exist_ok=True)
    figures: list[Figure] = []
    for name in names:
        path = FOLDER / f"{name}.svg"
        await PROFILES[name](path)
        print(path)
        figures += [Figure(f"{name}: {each.name}", f"{each.share:.1%}") for each in top_functions(path.read_text())]
    section = Section("Profiles", figures, _NOTE)
    print(section.text())
    if list(names) == list(PROFILES):
        keep(section)


class Function(NamedTuple):
    """A function of a profile, and its share of the samples without those of the functions that it calls."""

    name: str
    share: float


def top_functions(flame_graph: str, most: int = TOP) -> list[Function]:
    """The functions with the most samples in a flame graph of py-spy, without threads that wait."""
    frames = sorted(
        _Frame(int(y), int(start), int(width), html.unescape(name))
        for name, y, start, width in _FRAME.findall(flame_graph)
    )
    own = {frame: frame.width for frame in frames}
    levels: dict[int, list[_Frame]] = {}
    for frame in frames:
        levels.setdefault(frame.y, []).append(frame)
    callers: list[_Frame] = []
    for _, level in sorted(levels.items()):
        for frame in level:
            # The last frame of the level above that begins no later; of those there is at most one around it.
            place = bisect_right(callers, frame.start, key=lambda each: each.start) - 1
            if place >= 0 and frame.start < callers[place].start + callers[place].width:
                own[callers[place]] -= frame.width
        callers = level
    shares: Counter[str] = Counter()
    for frame, samples in own.items():
        if not frame.name.startswith(_NO_WORK):
            shares[_LINE.sub(")", frame.name)] += samples
    total = shares.total()
    return [Function(name, samples / total) for name, samples in shares.most_common(most)]


class _Frame(NamedTuple):
    y: int
    start: int
    width: int
    name: str


async def _worker(path: Path) -> None:
    """Pages over HTTP, parsed and written: see `bench.http`."""
    await _run(*_recorded(path), "--", sys.executable, "-m", "bench.http", str(ENGINE_TURNS))


async def _engine(server: str, path: Path) -> None:
    """The whole path of a job, without network: see `bench.engine`."""
    command = (sys.executable, "-m", "bench.engine", server, "--turns", str(ENGINE_TURNS))
    await _run(*_recorded(path), "--", *command)


async def _reads(path: Path) -> None:
    """A server that answers reads of snapshots."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, tcp_server() as valkey_url:
        async with serving(Path(folder), valkey_url) as server, _attached(path, server.pid):
            await read_continuously(server, READ_S)


async def _collect(path: Path) -> None:
    """`tidegate collect` of new repositories, from its start to its end."""
    async with open_github() as github:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            collection = OneCollection(github, Path(folder))
            await _run(*_recorded(path), "--", *collection.command, environment=collection.environment)


PROFILES: dict[str, Callable[[Path], Awaitable[None]]] = {
    "engine-sqlite": partial(_engine, "sqlite"),
    "engine-postgres": partial(_engine, "postgres"),
    "engine-mariadb": partial(_engine, "mariadb"),
    "worker": _worker,
    "reads": _reads,
    "collect": _collect,
}


def _recorded(path: Path) -> tuple[str, ...]:
    """The beginning of a command that records what follows, or the process that is named."""
    recorder = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if recorder is None:
        raise SystemExit("py-spy is not installed: make install")
    return (recorder, "record", "--rate", str(_RATE), "--threads", "--output", str(path))


async def _run(*command: str, environment: dict[str, str] | None = None) -> None:
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait() not in (0, 1):  # 1: a collection that some repositories refused
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")


@asynccontextmanager
async def _attached(path: Path, pid: int) -> AsyncGenerator[None]:
    """Record a process that runs already, during a block."""
    recorder = await asyncio.create_subprocess_exec(*_recorded(path), "--pid", str(pid))
    try:
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        await recorder.wait()


def names_of(arguments: Sequence[str] | None = None) -> list[str]:
    """The profiles that a command line names; all of them if it names none."""
    parser = argparse.ArgumentParser(prog="python -m bench.profiles", description="Write flame graphs into profiles/.")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(PROFILES))
    names: list[str] = parser.parse_args(arguments).names or list(PROFILES)
    if unknown := set(names) - set(PROFILES):  # `choices` would refuse the empty list
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PROFILES)}")
    return names


if __name__ == "__main__":
    uvloop.run(profile(names_of()))
