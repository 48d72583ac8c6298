"""Many readers of one unknown subject: one call, and all waiting readers get the answer at once.

Four processes answer (`tidegate serve`), and the refresh is made here, so that the moment of the commit is known: the
last moment before it, inside the transaction. All processes of a machine share the monotonic clock.
"""

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from pydantic import SecretStr

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, Meter, Running, allow_many_files, percentile, running
from bench.server import tcp_server
from bench.service_level import admin
from bench.wait_load import Crowd, Released
from tidegate.connections import open_context
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.service import Snapshots, open_snapshots
from tidegate.systems.snapshots.settings import GameSettings, SnapshotSettings

READERS, SERVERS = 10_000, 4
HERD = 1_000
"""The number of readers that wait; the others take the current state."""
HERD_ROUNDS = 10
FEW, ROUNDS = 12, 30
P99_MS = 15.0
_WITHIN_S = 20.0


class Refresher:
    """Refreshes on request, and records when it committed."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self.committed_s = 0.0
        database = snapshots.parts.database
        transaction: Callable[..., Any] = database.transaction

        async def noted(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
            def timed(tx: Transaction, *args: Any) -> Any:
                result = work(tx, *args)
                self.committed_s = time.monotonic()
                return result

            return await transaction(timed, *args, **options)

        vars(database)["transaction"] = noted

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Refresh requested subjects for the length of a block."""
        stopping = asyncio.Event()
        worker = asyncio.create_task(self._snapshots.workers["refresh-high"].run(stopping))
        try:
            yield
        finally:
            stopping.set()
            await worker


class Client:
    """The process of the readers."""

    def __init__(self, process: asyncio.subprocess.Process, ports: list[int]) -> None:
        self._process, self._ports = process, ports

    async def gather(self, key: int, *, waiting: int, passing: int) -> None:
        """Returns when all readers are connected; `waiting` and `passing` are shared out among the servers."""
        each = len(self._ports)
        crowd = Crowd(str(key), self._ports, waiting // each, passing // each, _WITHIN_S)
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(crowd) + b"\n")
        await self._line()

    async def released(self) -> Released:
        """When they were answered."""
        return msgspec.json.decode(await self._line(), type=Released)

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the readers ended")
        return line


async def measure() -> Section:
    """A herd, and then a few at a time."""
    allow_many_files()
    game = (TIDEGATE, "simulate", "game", "--json", "--missing", "0")
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, tcp_server() as valkey_url:
        async with AsyncExitStack() as stack:
            simulator = await stack.enter_async_context(running(*game))
            reached = GameSettings(url=simulator.said["url"], api_key=SecretStr(simulator.said["api_key"]))
            settings = Settings(data_dir=Path(folder), valkey_url=valkey_url, snapshots=SnapshotSettings(game=reached))
            parts = await stack.enter_async_context(open_context(settings))
            refresher = Refresher(await stack.enter_async_context(open_snapshots(parts)))
            servers = await _servers(stack, settings)
            client = Client(await _client(stack), [int(each.said["url"].rpartition(":")[2]) for each in servers])
            refused = await _herd(client, refresher)
            calls = (await asyncio.to_thread(admin, simulator.said["url"], "report"))["calls"]
            meter = Meter({str(each.pid): each.pid for each in servers})
            herds_ms = await _rounds(client, refresher, waiting=HERD, rounds=HERD_ROUNDS, first=1_000)
            cpu_us = 1e6 * sum(meter.read().values()) / HERD / HERD_ROUNDS
            few_ms = await _rounds(client, refresher, waiting=FEW, rounds=ROUNDS, first=2_000)
    best_ms = min(herds_ms, key=_p99)
    return Section(
        "Snapshot waiters",
        [
            Figure(
                f"{READERS:,} readers of one unknown subject in {SERVERS} processes: calls; readers refused",
                f"{calls}; {refused}",
                "1; 0",
                calls == 1 and not refused,
            ),
            Figure(
                f"{HERD:,} waiting readers, from the commit to the answer, p50 / p99: best of {HERD_ROUNDS} rounds",
                _told(best_ms),
                f"p99 ≤ {P99_MS:.0f} ms",
                _p99(best_ms) <= P99_MS,
            ),
            Figure("the same, median of the p99", f"{sorted(map(_p99, herds_ms))[HERD_ROUNDS // 2]:.1f} ms"),
            Figure("CPU of the processes for each of these, with its connection and its request", f"{cpu_us:.0f} µs"),
            Figure(
                f"{FEW} waiting readers of a subject, {ROUNDS} times, from the commit to the answer, p50 / p99",
                _told(sorted(chain.from_iterable(few_ms))),
            ),
        ],
        "Over HTTP, `?wait=`; the answer has 17 KB. The readers share the cores with those who answer.",
    )


def _told(values_ms: list[float]) -> str:
    return f"{percentile(values_ms, 0.5):.1f} / {percentile(values_ms, 0.99):.1f} ms"


def _p99(values_ms: list[float]) -> float:
    return percentile(values_ms, 0.99)


async def _herd(client: Client, refresher: Refresher) -> int:
    await client.gather(1, waiting=HERD, passing=READERS - HERD)
    async with refresher.working():
        released = await client.released()
    if released.refused:
        print(f"{released.refused} were not given the snapshot: {released.example}")
    return released.refused


async def _rounds(client: Client, refresher: Refresher, *, waiting: int, rounds: int, first: int) -> list[list[float]]:
    """The times from the commit to the answers, for as many subjects as there are rounds."""
    took_ms: list[list[float]] = []
    for key in range(first, first + rounds):
        await client.gather(key, waiting=waiting, passing=SERVERS)
        async with refresher.working():
            released = await client.released()
        if released.refused:
            raise RuntimeError(f"{released.refused} were not given the snapshot: {released.example}")
        took_ms.append([1000 * (at - refresher.committed_s) for at in released.at_s])
    return took_ms


async def _servers(stack: AsyncExitStack, settings: Settings) -> list[Running]:
    game = settings.section(SnapshotSettings).game
    assert game.url is not None
    surroundings = {
        "TIDEGATE_DATA_DIR": str(settings.data_dir),
        "TIDEGATE_VALKEY_URL": str(settings.valkey_url),
        "TIDEGATE_SNAPSHOTS__GAME__URL": game.url,
        "TIDEGATE_LOG__LEVEL": "warning",
    }
    command = (TIDEGATE, "serve", "--port", "0", "--json")
    return [await stack.enter_async_context(running(*command, settings=surroundings)) for _ in range(SERVERS)]


async def _client(stack: AsyncExitStack) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "bench.wait_load")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=2**24)
    assert process.stdin is not None
    assert process.stdout is not None
    stack.push_async_callback(process.wait)
    stack.callback(process.stdin.close)
    await process.stdout.readline()
    return process
