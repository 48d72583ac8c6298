"""Every address that the dashboard asks, on a deployment of 100,000 runs and 2 million jobs.

A real server answers on a real socket. No jobs run meanwhile, so only the requests are measured. The addresses are
asked in turn, one question at a time, so that none has the caches for itself.
"""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from tests.servers.sql import durable_server

from bench import large
from bench.figures import Figure, Section
from bench.large import PostgresWriter, SqliteWriter
from bench.whole_site import open_site
from tidegate.connections import open_database
from tidegate.engine.source_cell import SourceCell
from tidegate.http.settings import HttpSettings
from tidegate.primitives.gate import Job
from tidegate.settings import Settings

ROUNDS = 60
TARGET_MS = 200
_MIDDLE, _OLD = large.RUNS // 2, 500
_JOB = large.JOBS - large.BIG_JOBS // 2
"""Of the newest run, which has the last numbers."""

ADDRESSES: Mapping[str, Sequence[str]] = {
    "runs: first page, by state, by user, both": (
        "/v1/runs",
        "/v1/runs?limit=500",
        "/v1/runs?state=running",
        "/v1/runs?state=failed",
        "/v1/runs?state=failed&state=canceled",
        "/v1/runs?state=completed&state=failed&state=canceled",
        "/v1/runs?state=planning&state=running&state=finalizing",
        "/v1/runs?login=user-77",
        "/v1/runs?login=nobody",
        "/v1/runs?login=user-77&state=failed",
        "/v1/runs?login=nobody&state=completed",
    ),
    "runs: deep pages": (
        f"/v1/runs?before={_MIDDLE}",
        f"/v1/runs?before={_OLD}&limit=500",
        f"/v1/runs?state=failed&before={_MIDDLE}",
        f"/v1/runs?state=failed&state=canceled&before={_OLD}",
        f"/v1/runs?login=user-77&before={_MIDDLE}",
    ),
    "a run of 20,000 jobs, one of 19": (f"/v1/runs/{large.RUNS}", f"/v1/runs/{_MIDDLE}"),
    "its jobs: first, deep, by state": (
        f"/v1/runs/{large.RUNS}/jobs",
        f"/v1/runs/{large.RUNS}/jobs?limit=500",
        f"/v1/runs/{large.RUNS}/jobs?after={_JOB}",
        *(f"/v1/runs/{large.RUNS}/jobs?state={state}" for state in ("failed", "running", "ready", "enqueued")),
        f"/v1/runs/{large.RUNS}/jobs?state=succeeded&after={_JOB - 5000}&limit=500",
        f"/v1/runs/{large.RUNS}/jobs?state=failed&state=ready&state=running",
    ),
    "a job with its executions": (f"/v1/jobs/{_JOB}", f"/v1/jobs/{_JOB}/executions"),
    "overview, runtime, dead letters counted": ("/v1/overview", "/v1/runtime", "/v1/overview/dead"),
    "quotas, credentials, schedules": (
        "/v1/quotas",
        "/v1/quotas?pool=pool-7",
        "/v1/credentials",
        "/v1/schedules",
        "/v1/schedules?login=user-7",
        "/v1/schedules?after=1500",
    ),
    "dead letters": ("/v1/dead-letters", "/v1/dead-letters?kind=event&limit=500", "/v1/dead-letters?kind=message"),
    "crawl": (
        "/v1/crawl/overview",
        "/v1/crawl/hosts",
        "/v1/crawl/identities",
        "/v1/crawl/schedules",
        "/v1/crawl/products",
        "/v1/crawl/products?host=shop-0.example",
        "/v1/crawl/products?host=shop-0.example&gone=false",
        "/v1/crawl/products?host=shop-8.example&shop=shop-8",
        "/v1/crawl/products?after=shop-0.example/product-7",
        "/v1/crawl/products?shop=shop-7",
        "/v1/crawl/products?gone=true",
        "/v1/crawl/raws",
        "/v1/crawl/raws?state=failed",
        "/v1/crawl/raws?state=processed",
        "/v1/crawl/raws?after=90000",
        "/v1/crawl/raws?host=shop-0.example",
        "/v1/crawl/raws?host=shop-0.example&state=failed",
        "/v1/crawl/raws?host=shop-8.example&state=pending",
        "/v1/crawl/raws?host=shop-0.example&product=product-7",
        f"/v1/crawl/raws?run={large.RUNS - 7}",
        "/v1/crawl/raws/77",
    ),
    "rooms, campaigns": ("/v1/rooms", "/v1/campaigns"),
    "history": ("/v1/history", "/v1/history?series=jobs/&series=quota/"),
    "reports": (
        *(f"/v1/reports/{name}" for name in ("runs", "jobs", "failing", "slow", "waiting", "times", "retries")),
        "/v1/reports/runs?hours=24",
        *(f"/v1/reports/{name}?hours=2160" for name in ("failing", "times", "retries")),
    ),
    "metrics, health": ("/metrics", "/readyz"),
    "live: the first event": (
        "/v1/live?topic=overview&topic=quotas&topic=runtime&topic=history",
        "/v1/live?topic=runs",
    ),
}


async def measure() -> Section:
    """On both databases."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        settings = Settings(data_dir=Path(folder), http=HttpSettings(port=0))
        figures += _figures("SQLite", await on_sqlite(settings))
    server = durable_server("postgres")
    if server is None:
        figures.append(Figure("PostgreSQL", "not on this machine"))
    else:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            async with server.database() as name:
                settings = Settings(data_dir=Path(folder), http=HttpSettings(port=0), database_url=server.url(name))
                figures += _figures("PostgreSQL", await on_postgres(settings.model_copy(update={"auto_migrate": True})))
    return Section(
        "Dashboard",
        figures,
        f"{large.RUNS:,} runs, {large.JOBS:,} jobs; each address {ROUNDS} times over HTTP; p50 / p95 / worst of the "
        "slowest address of each line.",
    )


async def on_sqlite(settings: Settings) -> Mapping[str, Sequence[float]]:
    """Milliseconds of every question, by address."""
    async with open_database(settings):
        pass
    await large.fill(SqliteWriter(settings.data_dir / "tidegate.db"))
    return await asked(settings)


async def on_postgres(settings: Settings) -> Mapping[str, Sequence[float]]:
    """The same."""
    async with open_database(settings):
        pass
    await large.fill(PostgresWriter(settings.effective_database_url))
    return await asked(settings)


async def asked(settings: Settings, rounds: int = ROUNDS) -> Mapping[str, Sequence[float]]:
    """Ask every address so many times, in turn."""
    took: defaultdict[str, list[float]] = defaultdict(list)
    everything = [address for addresses in ADDRESSES.values() for address in addresses]
    async with answering(settings) as url, aiohttp.ClientSession() as session:
        for _ in range(rounds):
            for address in everything:
                began = time.perf_counter()
                await _ask(session, url + address)
                took[address].append((time.perf_counter() - began) * 1000)
    return took


@asynccontextmanager
async def answering(settings: Settings) -> AsyncGenerator[str]:
    """A server at work; gives its address."""
    async with AsyncExitStack() as stack:
        (site, collection), stopping = await open_site(stack, settings), asyncio.Event()
        await _let_jobs_wait(collection.cell("github"))
        running = asyncio.create_task(site.services["http"].run(stopping))
        try:
            yield site.binding.url
        finally:
            stopping.set()
            await running


async def _let_jobs_wait(collection: SourceCell) -> None:
    """What would be at the gate."""
    gate = collection.parts.gate
    for number in range(large.CREDENTIALS):
        await gate.register(f"account-{number}", pool=f"pool-{number % 30}")
    waiting = [Job(job=f"j{number}", pool=f"pool-{number % 30}", run=f"r{number % 200}") for number in range(10_000)]
    await gate.enqueue(waiting)


async def _ask(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(url) as answer:
        assert answer.status == 200, f"{url}: {answer.status} {await answer.text()}"
        if "/v1/live" not in url:
            await answer.read()
            return
        async for line in answer.content:  # streams end without listeners
            if line.startswith(b"data:"):
                return


def _figures(database: str, took: Mapping[str, Sequence[float]]) -> list[Figure]:
    found: list[Figure] = []
    for what, addresses in ADDRESSES.items():
        slowest = max((took[address] for address in addresses), key=lambda all_ms: quantile(all_ms, 0.95))
        p95 = quantile(slowest, 0.95)
        told = f"{quantile(slowest, 0.5):.0f} / {p95:.0f} / {max(slowest):.0f} ms"
        found.append(Figure(f"{database}, {what}", told, f"p95 < {TARGET_MS} ms", p95 < TARGET_MS))
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """The least that so many did not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
