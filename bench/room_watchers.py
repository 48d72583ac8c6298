"""Ten thousand watch their places in one process while the line moves: how soon each sees it, and what that takes.

One process serves (`tidegate serve`, which leads as well), another holds the connections, and from here people at the
front leave, at recorded times: all visitors behind them move up.
"""

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import accumulate
from pathlib import Path

import msgspec

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, Meter, allow_many_files, percentile, running
from bench.server import tcp_server
from bench.watch_load import ROOM, Seen
from tidegate.connections import open_context
from tidegate.http.settings import HttpSettings
from tidegate.settings import Settings
from tidegate.systems.waiting_room import RoomPlan, WaitingRoom
from tidegate.systems.waiting_room.system import open_waiting_rooms

WATCHERS, AHEAD = 10_000, 400
MOVES, EVERY_S = 40, 0.25
"""The number of departures per step, such that all visitors ahead have left at the end."""
WITHIN_S, CPU = 1.0, 0.5
_AT_ONCE = 200


async def measure() -> Section:
    allow_many_files()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, tcp_server() as url:
        async with AsyncExitStack() as stack:
            settings = Settings(data_dir=Path(folder), valkey_url=url, http=HttpSettings(port=0))
            parts = await stack.enter_async_context(open_context(settings))
            rooms = open_waiting_rooms(settings, parts.database, parts.valkey)
            await rooms.create(ROOM, RoomPlan(capacity=0))
            room = await rooms.open(ROOM)
            ahead = await _join(room, "early", AHEAD)
            tokens = await _join(room, "visitor", WATCHERS)
            file = Path(folder) / "passes.json"
            file.write_bytes(msgspec.json.encode(tokens))
            server = await stack.enter_async_context(running(*_SERVE, settings=_surroundings(folder, url)))
            empty = _resident(server.pid)
            load = await _load(stack, file, int(server.said["url"].rpartition(":")[2]))
            await asyncio.sleep(2)  # the last of them has just come
            per_watcher = (_resident(server.pid) - empty) / WATCHERS
            meter, began = Meter({"server": server.pid}), time.monotonic()
            moments = await _move(room, ahead)
            await asyncio.sleep(WITHIN_S)
            share = meter.read()["server"] / (time.monotonic() - began)
            seen = await _seen(load)
    took_s, missed = _latencies(seen, moments)
    events = sum(len(each.at_s) - 1 for each in seen)
    return Section(
        "Room watchers",
        [
            Figure(
                f"{WATCHERS:,} watchers in one process, {1 / EVERY_S:.0f} moves a second: from a move until each has "
                "seen it, p50 / p99 / last",
                f"{percentile(took_s, 0.5):.2f} / {percentile(took_s, 0.99):.2f} / {took_s[-1]:.2f} s",
                f"≤ {WITHIN_S:.0f} s",
                percentile(took_s, 0.99) <= WITHIN_S and not missed,
            ),
            Figure("CPU of that process meanwhile", f"{share:.0%} of one core", f"< {CPU:.0%}", share < CPU),
            Figure("events sent; moves that a watcher missed", f"{events:,}; {missed}", "0 unseen", not missed),
            Figure("memory of that process for each watcher", f"{per_watcher / 1024:.0f} KB"),
        ],
        f"Over HTTP, one connection each; {AHEAD} visitors ahead leave, {AHEAD // MOVES} at a time.",
    )


_SERVE = (TIDEGATE, "serve", "--port", "0", "--json")


def _surroundings(folder: str, url: str) -> dict[str, str]:
    return {
        "TIDEGATE_DATA_DIR": folder,
        "TIDEGATE_VALKEY_URL": url,
        "TIDEGATE_HTTP__MOST_WATCHERS": str(WATCHERS),
        "TIDEGATE_LOG__LEVEL": "warning",
    }


async def _join(room: WaitingRoom, name: str, people: int) -> list[str]:
    """They come; their passes."""
    tokens: list[str] = []
    for start in range(0, people, _AT_ONCE):
        names = [f"{name}-{n:05}" for n in range(start, min(start + _AT_ONCE, people))]
        tokens += [answer.token or "" for answer in await asyncio.gather(*(room.join(each) for each in names))]
    return tokens


async def _load(stack: AsyncExitStack, file: Path, port: int) -> asyncio.subprocess.Process:
    """The process of the watchers, when all of them have received their place."""
    command = (sys.executable, "-m", "bench.watch_load", str(file), str(port))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=2**27)
    assert process.stdout is not None
    stack.push_async_callback(process.wait)
    stack.callback(_end, process)
    if not await process.stdout.readline():
        raise RuntimeError("the watchers ended")
    return process


def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


async def _move(room: WaitingRoom, ahead: Sequence[str]) -> list[tuple[float, int]]:
    """The moments at which people gave up, and how many."""
    moments: list[tuple[float, int]] = []
    each, began = len(ahead) // MOVES, time.monotonic()
    for n in range(MOVES):
        await asyncio.sleep(max(0.0, began + n * EVERY_S - time.monotonic()))
        for token in ahead[n * each : (n + 1) * each]:
            await room.leave(token)
        moments.append((time.monotonic(), each))
    return moments


async def _seen(load: asyncio.subprocess.Process) -> list[Seen]:
    assert load.stdin is not None
    assert load.stdout is not None
    load.stdin.write(b"\n")
    return msgspec.json.decode(await load.stdout.readline(), type=list[Seen])


def _latencies(seen: Sequence[Seen], moments: Sequence[tuple[float, int]]) -> tuple[list[float], int]:
    """Seconds from each move until each watcher had seen it, in order; and how many never did."""
    gone = list(accumulate(count for _, count in moments))
    took_s: list[float] = []
    missed = 0
    for each in seen:
        at = 0
        for (moment, _), total in zip(moments, gone, strict=True):
            while at < len(each.positions) and each.positions[at] > each.positions[0] - total:
                at += 1
            if at == len(each.positions):
                missed += 1
            else:
                took_s.append(max(0.0, each.at_s[at] - moment))
    return sorted(took_s), missed


def _resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
