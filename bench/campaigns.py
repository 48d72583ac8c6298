"""Campaigns: entries accepted, entries decided in three databases, first entries of idle campaigns, idle campaigns."""

import asyncio
import resource
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.migrated import migrated_database
from tests.servers.sql import SqlName

from bench.figures import Figure, Section
from bench.server import tcp_server
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.decider import ConsumerContext
from tidegate.systems.campaigns.kinds import FirstCome, Kinds
from tidegate.systems.campaigns.model import (
    FIRST_COME,
    Campaign,
    CampaignEntry,
    CampaignPlan,
    EntryAnswer,
    EntryOutcome,
    EntryVerdict,
)
from tidegate.systems.campaigns.service import Campaigns
from tidegate.systems.campaigns.settings import CampaignSettings
from tidegate.systems.campaigns.worker import CampaignWorker

ENTRIES, CALLERS = 30_000, 250
FROM_ZERO, QUIET, QUIET_S = 200, 10_000, 30.0
DOOR_PER_S, THROUGH_PER_S, FIRST_MS, CPU_SHARE = 15_000, 5_000, 50.0, 0.5
DATABASES: dict[SqlName, str] = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB"}


class Stopwatch:
    """A kind that notes when it is asked."""

    kind = "STOPWATCH"

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> list[EntryOutcome]:
        del tx
        self.asked[campaign.id] = time.perf_counter()
        return [EntryOutcome(verdict=EntryVerdict.ISSUED) for _ in entries]


@dataclass
class Environment:
    """Campaigns, with their workers in this process."""

    valkey: Valkey
    database: Database
    campaigns: Campaigns
    manager: CampaignWorker

    async def open(self, campaign: str, kind: str = FIRST_COME, total: int = ENTRIES) -> None:
        await self.campaigns.create(CampaignPlan(id=campaign, kind=kind, total_count=total))
        await self.campaigns.start(campaign)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        stopping = asyncio.Event()
        running = asyncio.create_task(self.manager.run(stopping), name="manager")
        yield
        stopping.set()
        await running


async def measure() -> Section:
    stopwatch = Stopwatch()
    figures: list[Figure] = []
    for name, title in DATABASES.items():
        async with _environment(name, stopwatch) as environment:
            if name == "sqlite":
                figures += await _door(environment)
            figures.append(await _through(environment, title))
            if name == "sqlite":
                figures += await _from_zero(environment, stopwatch)
                figures += await _quiet(environment)
    note = "Door and consumers in one process, the Valkey server in another; append-only file as embedded."
    return Section("Campaigns", figures, note)


@asynccontextmanager
async def _environment(name: SqlName, stopwatch: Stopwatch) -> AsyncGenerator[Environment]:
    with tcp_server() as url, tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with (
            migrated_database(name, Path(folder)) as database_url,
            connected(url) as valkey,
            await Database.open(database_url) as database,
        ):
            kinds, settings = Kinds([FirstCome(), stopwatch]), CampaignSettings(idle_timeout_seconds=1)
            campaigns = Campaigns(valkey, database, settings, kinds=kinds.names)
            context = ConsumerContext(
                valkey, database, "bench", kinds, settings, on_decided=campaigns.result_feed.decided
            )
            yield Environment(valkey, database, campaigns, CampaignWorker(context, campaigns.installer))
            await campaigns.close()


async def _enter_all(campaigns: Campaigns, campaign: str) -> None:
    async def call(caller: int) -> None:
        for n in range(caller, ENTRIES, CALLERS):
            entered = await campaigns.enter(campaign, f"user-{n:06}")
            assert entered.answer is EntryAnswer.ACCEPTED, entered

    await asyncio.gather(*(call(caller) for caller in range(CALLERS)))


async def _door(environment: Environment) -> list[Figure]:
    await environment.open("door")
    began, cpu_s = time.perf_counter(), _cpu_s()
    await _enter_all(environment.campaigns, "door")
    rate, cost_us = ENTRIES / (time.perf_counter() - began), (_cpu_s() - cpu_s) / ENTRIES * 1e6
    await environment.campaigns.stop("door")
    await environment.valkey.execute("FLUSHALL")  # these are not decided
    door = f"entries accepted, not decided, {CALLERS} callers in one process"
    return [
        Figure(door, f"{rate:,.0f}/s", f"≥ {DOOR_PER_S:,}/s", rate >= DOOR_PER_S),
        Figure("CPU of the process for each of them", f"{cost_us:.1f} µs"),
    ]


async def _through(environment: Environment, title: str) -> Figure:
    """From the first entry until the last one is decided, and nothing is in line."""
    await environment.open("through")
    async with environment.working():
        began = time.perf_counter()
        await _enter_all(environment.campaigns, "through")
        while (await environment.campaigns.status("through")).depth:
            await asyncio.sleep(0.005)
        rate = ENTRIES / (time.perf_counter() - began)
    assert (await environment.campaigns.get("through")).issued == ENTRIES
    return Figure(
        f"{ENTRIES:,} entries accepted and decided in {title}", f"{rate:,.0f}/s", f"≥ {THROUGH_PER_S:,}/s",
        rate >= THROUGH_PER_S,
    )  # fmt: skip


async def _from_zero(environment: Environment, stopwatch: Stopwatch) -> list[Figure]:
    """From the call of `enter` to the kind, of campaigns without consumers."""
    names = [f"zero-{n}" for n in range(FROM_ZERO)]
    for name in names:
        await environment.open(name, stopwatch.kind, total=1)
    took_ms: list[float] = []
    async with environment.working():
        await asyncio.sleep(0.2)  # until it listens
        for name in names:
            began = time.perf_counter()
            async with environment.campaigns.watch(name, "ann") as watch:
                await environment.campaigns.enter(name, "ann")
                while not (await environment.campaigns.result(name, "ann")).is_final:
                    await watch.wait(5)
            took_ms.append((stopwatch.asked[name] - began) * 1000)
    took_ms.sort()
    p99 = took_ms[int(len(took_ms) * 0.99)]
    return [
        Figure("from zero: first entry to its kind, median", f"{took_ms[len(took_ms) // 2]:.1f} ms"),
        Figure("from zero: first entry to its kind, p99", f"{p99:.1f} ms", f"≤ {FIRST_MS:.0f} ms", p99 <= FIRST_MS),
    ]


async def _quiet(environment: Environment) -> list[Figure]:
    """Open, and without entries; each has had one, so that the server knows it."""
    await environment.database.transaction(_create_many)
    for n in range(QUIET):
        await environment.campaigns.installer.install(f"quiet-{n}")
    before = asyncio.all_tasks()
    async with environment.working():
        await asyncio.sleep(2)
        tasks = len(asyncio.all_tasks() - before)
        commands, cpu_s = await _commands(environment.valkey), _cpu_s()
        await asyncio.sleep(QUIET_S)
        commands, cpu_s = await _commands(environment.valkey) - commands - 1, _cpu_s() - cpu_s
        pools = len(environment.manager.pools)
    share, per_5_s = cpu_s / QUIET_S * 100, commands / QUIET_S * 5
    return [
        Figure(f"{QUIET:,} quiet campaigns: consumers", str(pools), "0", pools == 0),
        Figure("the same: tasks of the whole service", str(tasks)),
        Figure("the same: server commands in 5 s", f"{per_5_s:.2f}", "≤ 1", per_5_s <= 1),
        Figure("the same: CPU of the process", f"{share:.2f} %", f"≤ {CPU_SHARE} %", share <= CPU_SHARE),
    ]


def _create_many(tx: Transaction) -> None:
    for n in range(QUIET):
        campaign_store.create(tx, CampaignPlan(id=f"quiet-{n}", kind=FIRST_COME, total_count=1000))
        campaign_store.start(tx, f"quiet-{n}", None, None)


async def _commands(valkey: Valkey) -> int:
    return (await valkey.execute("INFO", "stats"))["total_commands_processed"]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
