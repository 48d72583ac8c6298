"""Whether one slow part slows others: a matrix of what is slow and what is measured, alternately with and without.

Two `tidegate up` processes with all systems on PostgreSQL, and two sources, each with an upstream of its own. The
disturbances leave CPU time free, so that what is seen is waiting for one another and not a lack of cores.
"""

import asyncio
import itertools
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from tests.servers.proxy import Proxy
from tests.servers.sql import durable_server

from bench.figures import Figure, Section
from bench.interference_source import ADDRESS, LARGE
from bench.processes import TIDEGATE, Running, percentile, running
from bench.read_load import Load
from bench.server import tcp_server

PHASE_S, TURNS = 6.0, 2
PAUSE_S = 1.0
"""After a disturbance, before the next phase."""
DATABASE_DELAY_S = 0.05
SLOW_RUNS = 30
HOT_READS_PER_S, HOT_LINES = 1_000.0, 32
SUBJECTS = range(2, 22)
FIRST_PAGE, READ, JOIN, ENTRY, ADMISSION = COLUMNS = (
    "another run's first page",
    "snapshot read",
    "room join",
    "campaign entry",
    "leader: from join to admission",
)
TIMES, MORE_S = 3.0, 0.05
"""Interference is large if a median is so many times, and so much, longer."""
_ENDED = ("completed", "failed", "canceled")
_RUN_WITHIN_S = 30.0

Took = dict[str, list[float]]


async def measure() -> Section:
    """Each disturbance in turn, with phases without it between."""
    figures: list[Figure] = []
    async with _deployment() as deployment:
        if deployment is None:
            return Section("Interference", [Figure("the matrix", "PostgreSQL is not on this machine")])
        await deployment.prepare()
        await deployment.phase(defaultdict(list))  # the first phase warms everything, and does not count
        for name, disturbance in deployment.disturbances.items():
            without: Took = defaultdict(list)
            beside: Took = defaultdict(list)
            for _ in range(TURNS):
                await deployment.phase(without)
                async with disturbance():
                    await deployment.phase(beside)
                await asyncio.sleep(PAUSE_S)
            figures += [compared(name, column, without[column], beside[column]) for column in COLUMNS]
    return Section(
        "Interference",
        figures,
        f"p50 / p99 in ms without and with the disturbance, {TURNS} phases of {PHASE_S:.0f} s each in turns; two "
        "`tidegate up` on PostgreSQL; requests go to the first, which leads. Slow upstream: "
        f"{SLOW_RUNS} runs of another source whose answers take 5 s. Slow database: its answers take "
        f"{1000 * DATABASE_DELAY_S:.0f} ms longer. Giant run: 20,000 jobs of the same source and pool, 10 calls at "
        "once. Frozen worker: the second process is stopped. Hot snapshot subject: one is read "
        f"{HOT_READS_PER_S:,.0f} times per second. A first page is counted from the creation of its run in SQL to the "
        f"end of its first job. Interference is large where a median is more than {TIMES:.0f} times and "
        f"{1000 * MORE_S:.0f} ms longer.",
    )


def compared(disturbance: str, column: str, without: list[float], beside: list[float]) -> Figure:
    """The times without and beside a disturbance, and whether they are much longer beside it."""
    halves = [(percentile(sorted(each), 0.5), percentile(sorted(each), 0.99)) for each in (without, beside) if each]
    if len(halves) < 2:
        return Figure(f"{disturbance}: {column}", "no answer", "median not much longer", False)
    (p50, _), (p50_beside, _) = halves
    told = " → ".join(f"{1000 * half:,.1f} / {1000 * most:,.1f}" for half, most in halves)
    is_large = p50_beside > TIMES * p50 and p50_beside - p50 > MORE_S
    what = f"{disturbance}: {column}"
    return Figure(what, f"{told} ({len(without)} and {len(beside)} times)", "median not much longer", not is_large)


class Deployment:
    """Two processes, the disturbances, and a client of the first process."""

    def __init__(self, members: list[Running], proxy: Proxy, http: aiohttp.ClientSession) -> None:
        self._members, self._proxy, self._http = members, proxy, http
        self._url: str = members[0].said["url"]
        self._numbers = itertools.count()
        self.disturbances: dict[str, Callable[[], Any]] = {
            "slow upstream": self._slow_upstream,
            "slow database": self._slow_database,
            "giant run": self._giant_run,
            "frozen worker": self._frozen_worker,
            "hot snapshot subject": self._hot_subject,
        }

    async def prepare(self) -> None:
        """A room, a campaign, and snapshots that are there."""
        plan = {"capacity": 1_000_000, "session_s": 1500, "title": "Bench"}
        await self._ask("POST", "/v1/rooms", {"name": "bench", "plan": plan})
        await self._ask("POST", "/v1/rooms/bench/open")
        await self._ask("POST", "/v1/campaigns", {"id": "bench", "kind": "FIRST_COME", "total_count": 10**6})
        await self._ask("POST", "/v1/campaigns/bench/start")
        for subject in [1, *SUBJECTS]:
            while (await self._ask("GET", f"/v1/snapshots/character/{subject}"))["snapshot"] is None:
                await asyncio.sleep(0.05)

    async def phase(self, took: Took) -> None:
        """Send every kind of request at its rate for the length of a phase; return when all are answered."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(group, 2, self._first_page, took))
            group.create_task(self._repeat(group, 50, self._read, took))
            group.create_task(self._repeat(group, 10, self._join, took))
            group.create_task(self._repeat(group, 20, self._enter, took))

    async def _repeat(
        self, group: asyncio.TaskGroup, per_s: float, act: Callable[[Took], Awaitable[None]], took: Took
    ) -> None:
        """At a fixed rate, however long the answers take."""
        began = time.perf_counter()
        for n in range(int(PHASE_S * per_s)):
            await asyncio.sleep(max(0.0, began + n / per_s - time.perf_counter()))
            group.create_task(_coroutine(act(took)))

    async def _first_page(self, took: Took) -> None:
        run = await self._ask("POST", "/v1/runs", {"source": "quick", "login": f"small-{next(self._numbers)}"})
        deadline = time.perf_counter() + _RUN_WITHIN_S
        while run["started_at"] is None and time.perf_counter() < deadline:
            await asyncio.sleep(0.05)
            run = await self._ask("GET", f"/v1/runs/{run['id']}")
        if run["started_at"] is None:
            took[FIRST_PAGE].append(_RUN_WITHIN_S)
            return
        began, ended = (datetime.fromisoformat(run[name]) for name in ("created_at", "started_at"))
        took[FIRST_PAGE].append((ended - began).total_seconds())

    async def _read(self, took: Took) -> None:
        subject = SUBJECTS[next(self._numbers) % len(SUBJECTS)]
        await self._timed(READ, took, "GET", f"/v1/snapshots/character/{subject}")

    async def _join(self, took: Took) -> None:
        began, user = time.perf_counter(), f"visitor-{next(self._numbers)}"
        place = await self._timed(JOIN, took, "POST", "/v1/rooms/bench/entries", {"user": user})
        while place["state"] != "inside":
            await asyncio.sleep(0.02)
            place = await self._ask("GET", "/v1/rooms/bench/place", headers={"Tidegate-Pass": place["pass"]})
        took[ADMISSION].append(time.perf_counter() - began)

    async def _enter(self, took: Took) -> None:
        user = f"user-{next(self._numbers)}"
        await self._timed(
            ENTRY, took, "POST", "/v1/campaigns/bench/entries", {"user": user}, headers={"Idempotency-Key": user}
        )

    async def _timed(self, column: str, took: Took, method: str, path: str, body: Any = None, **options: Any) -> Any:
        began = time.perf_counter()
        answer = await self._ask(method, path, body, **options)
        took[column].append(time.perf_counter() - began)
        return answer

    async def _ask(self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> Any:
        options: dict[str, Any] = {"json": {} if body is None else body} if method == "POST" else {}
        async with self._http.request(method, self._url + path, headers=headers, **options) as answer:
            said = await answer.json(content_type=None)
            if answer.status >= 400:
                raise RuntimeError(f"{method} {path}: {answer.status} {said}")
            return said

    # Disturbances

    @asynccontextmanager
    async def _slow_upstream(self) -> AsyncGenerator[None]:
        logins = [f"slow-{next(self._numbers)}" for _ in range(SLOW_RUNS)]
        async with self._runs("slow", logins):
            yield

    @asynccontextmanager
    async def _giant_run(self) -> AsyncGenerator[None]:
        async with self._runs("quick", [LARGE]):
            yield

    @asynccontextmanager
    async def _runs(self, source: str, logins: list[str]) -> AsyncGenerator[None]:
        """Runs that are canceled after the block."""
        begun = [await self._ask("POST", "/v1/runs", {"source": source, "login": login}) for login in logins]
        try:
            yield
        finally:
            for run in begun:
                with suppress(RuntimeError):  # it has ended
                    await self._ask("POST", f"/v1/runs/{run['id']}/cancel")

    @asynccontextmanager
    async def _slow_database(self) -> AsyncGenerator[None]:
        self._proxy.delay(DATABASE_DELAY_S)
        try:
            yield
        finally:
            self._proxy.delay(0)

    @asynccontextmanager
    async def _frozen_worker(self) -> AsyncGenerator[None]:
        os.kill(self._members[1].pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._members[1].pid, signal.SIGCONT)

    @asynccontextmanager
    async def _hot_subject(self) -> AsyncGenerator[None]:
        port = int(self._url.rpartition(":")[2])
        load = Load(
            port=port,
            path="/v1/snapshots/character/",
            keys=1,
            lines=HOT_LINES,
            for_s=2 * PHASE_S,
            per_second=HOT_READS_PER_S,
        )
        command = (sys.executable, "-m", "bench.read_load", msgspec.json.encode(load).decode())
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        try:
            await asyncio.sleep(PAUSE_S)  # it starts
            yield
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _coroutine(work: Awaitable[None]) -> None:
    await work


@asynccontextmanager
async def _deployment() -> AsyncGenerator[Deployment | None]:
    server = durable_server("postgres")
    if server is None:
        yield None
        return
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-"))
        valkey_url = stack.enter_context(tcp_server())
        database = await stack.enter_async_context(server.database())
        proxy = await stack.enter_async_context(Proxy(server.port))
        game = (TIDEGATE, "simulate", "game", "--json", "--missing", "0", "--subjects", "1000", "--body-bytes", "60000")
        simulator = await stack.enter_async_context(running(*game))
        upstream = await stack.enter_async_context(running(sys.executable, "-m", "bench.interference_source"))
        settings = {
            ADDRESS: upstream.said["url"],
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "QUICK_TOKEN": "quick-token",
            "SLOW_TOKEN": "slow-token",
            "TIDEGATE_SOURCES": '["bench.interference_source:QuickSource", "bench.interference_source:SlowSource"]',
            "TIDEGATE_DATA_DIR": folder,
            "TIDEGATE_VALKEY_URL": valkey_url,
            "TIDEGATE_DATABASE_URL": server.url(database, port=proxy.port),
            "TIDEGATE_AUTO_MIGRATE": "true",
            "TIDEGATE_LOG__LEVEL": "error",
            "TIDEGATE_GATE__CONCURRENCY": "10",
            "TIDEGATE_GATE__PER_MINUTE": "1000000",
            "TIDEGATE_UPSTREAM__PRIVATE_HOSTS": '["127.0.0.1"]',
            "TIDEGATE_SNAPSHOTS__GAME__URL": simulator.said["url"],
            "TIDEGATE_SNAPSHOTS__GAME__API_KEY": simulator.said["api_key"],
            "TIDEGATE_SNAPSHOTS__GAME__TTL": "5",
        }
        # One after the other, so that the first leads.
        up = (TIDEGATE, "up", "--json", "--port", "0")
        members = [await stack.enter_async_context(running(*up, settings=settings)) for _ in range(2)]
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60))
        )
        yield Deployment(members, proxy, http)
