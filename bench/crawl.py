"""A whole marketplace, crawled by Tidegate and by Scrapy with scrapy-redis: pages per second on the same two cores.

Each in turn meets a simulator of its own, with the same world, the same identities, no delay and no limit; robots.txt
is read. The clock is the simulator's: from the first call until the last document is where the crawler keeps it. That
is a list in Redis for Scrapy, and rows of products in SQL for Tidegate, each made from its stored answer in one
transaction. Scrapy is tuned first: requests at once, handler and processes; we: processes.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from redis import Redis
from tests.servers.sql import SqlName, durable_server

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, Meter, Running, running
from bench.server import tcp_server

PRODUCTS, TRIED_WITH, IDENTITIES, TURNS = 4_000, 600, 64, 2
LATENCIES_MS = (0, 20)
DATABASES: dict[SqlName, str] = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
CORES = 2
_LOOK_S = 0.05
_STAGES = 3
_PEER_PYTHON = Path(__file__).parent.parent / ".peers" / "bin" / "python"
_PEER = Path(__file__).parent / "peers" / "run_scrapy.py"


class Tuning(msgspec.Struct, frozen=True):
    """How Scrapy is set."""

    at_once: int = 16
    handler: str = "twisted"
    processes: int = 1

    def __str__(self) -> str:
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return f"{processes}, {self.at_once} requests at once each, {self.handler}"


class Given(msgspec.Struct, frozen=True):
    """The parameters of a crawling process."""

    folder: str
    database: str | None
    """None: SQLite in the folder."""
    url: str
    keywords: list[str]
    identities: dict[str, dict[str, str]]
    products: int
    begins: bool = True
    """Whether it begins the crawl; else it helps another one."""


class Crawled(msgspec.Struct, frozen=True):
    """One crawl, by the simulator's own account."""

    pages: int
    took_s: float
    cpu_us: dict[str, float]
    """Of all processes, for each page."""

    @property
    def per_second(self) -> float:
        """Pages."""
        return self.pages / self.took_s

    @property
    def cores(self) -> str:
        """The CPU time by process."""
        told = ", ".join(f"{name} {us:,.0f}" for name, us in self.cpu_us.items())
        return f"{told} µs of CPU for each page"


class Market:
    """A simulator in a process of its own."""

    def __init__(self, process: Running, products: int, http: aiohttp.ClientSession) -> None:
        self.pid, self.products, self._http = process.pid, products, http
        self.urls: list[str] = process.said["urls"]
        self.keywords: list[str] = process.said["keywords"]
        self.identities: list[dict[str, Any]] = process.said["identities"]

    async def account(self, meter: Meter) -> Crawled:
        """Right after the end of a crawl."""
        cpu_s = meter.read()
        report = await self._get("report")
        arrivals: list[int] = (await self._get("arrivals/0"))["at_us"]
        pages: int = report["calls"]
        if set(report["by_outcome"]) != {"200"} or pages < _STAGES * self.products:
            raise RuntimeError(f"this was no crawl of everything: {report['by_route']}, {report['by_outcome']}")
        took_s: float = report["cost"]["wall_s"] - arrivals[0] / 1e6
        return Crawled(pages, took_s, {name: spent / pages * 1e6 for name, spent in cpu_s.items()})

    async def _get(self, what: str) -> Any:
        async with self._http.get(f"{self.urls[0]}/admin/{what}") as answer:
            return await answer.json()


@asynccontextmanager
async def _market(products: int, latency_ms: float) -> AsyncGenerator[Market]:
    world = ("--products", str(products), "--identities", str(IDENTITIES), "--latency-ms", str(latency_ms))
    command = (TIDEGATE, "simulate", "marketplace", "--json", "--per-identity", "0", *world)
    async with running(*command) as process, aiohttp.ClientSession() as http:
        yield Market(process, products, http)


async def measure() -> Section:
    """Tune both, and then each in turn, so that all meet the same moments of the machine."""
    with _on_few_cores():
        tuning = await tuned()
        ours: dict[SqlName, int] = {name: await _fitting_processes(name) for name in DATABASES}
        figures: list[Figure] = []
        for latency_ms in LATENCIES_MS:
            crawled: dict[str, list[Crawled]] = {}
            for _ in range(TURNS):
                crawled.setdefault("Scrapy", []).append(await by_scrapy(PRODUCTS, latency_ms, tuning))
                for name, processes in ours.items():
                    if processes and (done := await by_us(PRODUCTS, latency_ms, name, processes)):
                        crawled.setdefault(f"tidegate, products in {DATABASES[name]}", []).append(done)
            figures += _figures(latency_ms, crawled)
    return Section(
        "Crawl",
        figures,
        f"{PRODUCTS:,} products with {_STAGES} documents each, and their listings; {IDENTITIES} identities; {CORES} "
        f"cores for all processes, simulator included; the better of {TURNS} turns each. Scrapy tuned: {tuning}.",
    )


def _figures(latency_ms: float, crawled: dict[str, list[Crawled]]) -> list[Figure]:
    best = {name: max(turns, key=lambda turn: turn.per_second) for name, turns in crawled.items()}
    peer, found = best.pop("Scrapy"), list[Figure]()
    told = f"{peer.per_second:,.0f} pages/s; {peer.cores}"
    found.append(Figure(f"answers take {latency_ms} ms: Scrapy, items in Redis", told))
    for name, ours in best.items():
        ratio = ours.per_second / peer.per_second
        told = f"{ours.per_second:,.0f} pages/s, {ratio:.1f}x; {ours.cores}"
        found.append(Figure(f"the same: {name}", told, "≥ Scrapy", ratio >= 1))
    return found


async def _fitting_processes(name: SqlName) -> int:
    """The best number of Tidegate processes; 0: this machine has no such server."""
    tried = {processes: await by_us(TRIED_WITH, 0, name, processes) for processes in (1, 2)}
    rates = {processes: crawled.per_second for processes, crawled in tried.items() if crawled}
    return max(rates, key=lambda processes: rates[processes], default=0)


async def tuned() -> Tuning:
    """What suits Scrapy best on this machine, one setting after the other."""
    best = Tuning()
    for name, values in {"at_once": (16, 32, 64), "handler": ("twisted", "aiohttp"), "processes": (1, 2)}.items():
        tried = [msgspec.structs.replace(best, **{name: value}) for value in values]
        rates = [(await by_scrapy(TRIED_WITH, 0, tuning)).per_second for tuning in tried]
        best = tried[rates.index(max(rates))]
    return best


async def by_scrapy(products: int, latency_ms: float, tuning: Tuning) -> Crawled:
    """One crawl by Scrapy, on an empty Redis."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        url = stack.enter_context(tcp_server())
        redis = stack.enter_context(Redis.from_url(url))
        market = await stack.enter_async_context(_market(products, latency_ms))
        server: Any = redis.info("server")
        pids = {"simulator": market.pid, "Redis": server["process_id"]}
        plan = {
            "urls": market.urls,
            "keywords": [urlencode({"q": keyword}) for keyword in market.keywords],
            "identities": [identity["headers"] for identity in market.identities],
            "concurrency": tuning.at_once,
            "handler": tuning.handler,
        }
        for number in range(tuning.processes):
            file = folder / f"plan-{number}.json"
            file.write_bytes(msgspec.json.encode({**plan, "begins": number == 0}))
            peer = await stack.enter_async_context(running(str(_PEER_PYTHON), str(_PEER), url, str(file)))
            pids[_named("Scrapy", number)] = peer.pid
        meter = Meter(pids)
        while redis.llen("market:items") < _STAGES * products:
            await asyncio.sleep(_LOOK_S)
        return await market.account(meter)


async def by_us(products: int, latency_ms: float, database: SqlName, processes: int) -> Crawled | None:
    """One crawl by Tidegate, on an empty database; None if this machine has no such server."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-"))
        url = None
        if database != "sqlite":
            server = durable_server(database)
            if server is None:
                return None
            url = server.url(await stack.enter_async_context(server.database()))
        market = await stack.enter_async_context(_market(products, latency_ms))
        identities = {identity["name"]: identity["headers"] for identity in market.identities}
        given = Given(folder, url, market.urls[0], market.keywords, identities, products)
        # The one that begins comes last: the others are ready by then.
        workers = [await _worker(stack, given, number) for number in reversed(range(processes))]
        pids = {"simulator": market.pid, "Valkey": workers[0].said["valkey"]}
        meter = Meter(pids | {_named("tidegate", number): worker.pid for number, worker in enumerate(workers)})
        if await workers[-1].line() != b"done\n":
            raise RuntimeError("our crawl did not end well")
        return await market.account(meter)


async def _worker(stack: AsyncExitStack, given: Given, number: int) -> Running:
    plan = Path(given.folder) / f"plan-{number}.json"
    plan.write_bytes(msgspec.json.encode(msgspec.structs.replace(given, begins=number == 0)))
    return await stack.enter_async_context(running(sys.executable, "-m", "bench.crawl_worker", str(plan)))


def _named(name: str, number: int) -> str:
    return name if number == 0 else f"{name} {number + 1}"


@contextmanager
def _on_few_cores() -> Generator[None]:
    """Pin this process and its children to the same few cores."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[:CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)
