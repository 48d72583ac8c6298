"""Faults of a crawl: workers are killed, and Valkey is killed or disconnected."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.processes import WarmProcess, start_warm
from tests.servers.proxy import Proxy

from chaos.servers import LosableValkey
from tidegate.runtime.waiting import occurs

_ROOT = Path(__file__).parents[1]


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Number of workers, and intervals of the faults."""

    workers: int = 8
    kill_every_s: float = 2.0
    fail_every_s: float = 5.0
    """Interval between outages of publishing."""
    fail_for_s: float = 0.3
    valkey_every_s: float = 45.0
    """Interval between kills of Valkey; it restarts with its data."""
    most: int | None = None
    """The maximum number of each fault; None: until the crawl is over."""


class CrawlFaults:
    """Kills and replaces workers, and interrupts the server."""

    def __init__(
        self, plan: FaultPlan, seed: int, server: LosableValkey, wire: Proxy, *, settings: dict[str, Any]
    ) -> None:
        self._plan, self._server, self._wire = plan, server, wire
        self._order = msgspec.json.encode(settings).decode()
        self._draw = random.Random(seed)
        self._workers: list[WarmProcess] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._mending = asyncio.Lock()
        self.killed = self.failures = self.valkey_killed = 0

    async def start(self) -> None:
        """As many workers as there are to be."""
        await asyncio.gather(*(self._start() for _ in range(self._plan.workers)))

    async def stop(self) -> None:
        """End them all."""
        await asyncio.gather(*self._starting)
        for worker in self._workers:
            worker.kill()
            await worker.wait()

    @asynccontextmanager
    async def making(self) -> AsyncGenerator[None]:
        """Inject all faults for the length of a block; after it all processes run again."""
        over = asyncio.Event()
        kinds = [asyncio.create_task(kind(over)) for kind in (self._kill, self._cut_off, self._kill_valkey)]
        try:
            yield
        finally:
            over.set()
            await asyncio.gather(*kinds, *self._starting)

    async def _kill(self, over: asyncio.Event) -> None:
        """One after the other, and one at least: its place is taken while the next one dies."""
        while self._go_on(self.killed) and (
            not await occurs(over, within_s=self._plan.kill_every_s) or not self.killed
        ):
            if len(self._workers) < min(2, self._plan.workers):
                continue  # the others are not born yet
            worker = self._workers.pop(self._draw.randrange(len(self._workers)))
            worker.kill()
            await worker.wait()
            self.killed += 1
            starting = asyncio.create_task(self._start())
            self._starting.add(starting)
            starting.add_done_callback(self._starting.discard)

    async def _cut_off(self, over: asyncio.Event) -> None:
        """Cut the connection to Valkey, after losing the reply to one command."""
        while self._go_on(self.failures) and not await self._is_over_within(over, self._plan.fail_every_s):
            async with self._mending:
                self._wire.cut_after(b"EVALSHA")
                await asyncio.sleep(self._plan.fail_for_s)
                await self._wire.refuse()
                await asyncio.sleep(self._plan.fail_for_s)
                await self._wire.listen()
            self.failures += 1

    async def _kill_valkey(self, over: asyncio.Event) -> None:
        while self._go_on(self.valkey_killed) and not await self._is_over_within(over, self._plan.valkey_every_s):
            async with self._mending:
                await self._wire.refuse()
                await asyncio.to_thread(self._server.restart)
                await self._wire.listen()
            self.valkey_killed += 1

    def _go_on(self, times: int) -> bool:
        return self._plan.most is None or times < self._plan.most

    async def _is_over_within(self, over: asyncio.Event, about_s: float) -> bool:
        return await occurs(over, within_s=about_s * (0.5 + self._draw.random()))

    async def _start(self) -> None:
        command = (sys.executable, "-m", "chaos.crawl_process", self._order)
        worker = await start_warm(*command, stdout=PIPE, cwd=_ROOT)
        assert worker.stdout is not None
        await worker.stdout.readline()
        self._workers.append(worker)
