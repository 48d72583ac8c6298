"""A crawl, and kill -9: `python -m chaos.crawl [--products N] [--hosts N] [--workers N] [--kill-every SECONDS]
[--fail-every SECONDS] [--valkey-every SECONDS] [--delay-ms MS] [--database NAME] [--seed S] [--json]`.

A marketplace is crawled twice, and changes in between. Workers are killed all the while and replaced; the server that
hands out the work is cut off for moments, also in the very moment of a publication, and killed; the hosts answer with
errors, captchas, redirects, broken pages and requests to wait. Each page of a search shows one product, so a product is
four tasks. Exit 0 when nothing is left undone, no product is lost or differs from the simulator's truth, everything new
was applied once and in the order of its stages, pages that had not changed were not written again, and no host was ever
called sooner than max(setting, Crawl-delay, Retry-After), by its own clock and without any leeway.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from sqlalchemy import func, select
from tests.servers.migrated import migrated_database
from tests.servers.proxy import Proxy
from tests.servers.sql import SqlName

from chaos import crawl_audit, crawl_trace
from chaos.crawl_audit import Round, Truth, Verdict, World
from chaos.crawl_faults import CrawlFaults, FaultPlan
from chaos.progress import Stalled, until
from chaos.servers import LosableValkey
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.tables import collection_runs, job_executions
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction, outbox
from tidegate.systems.crawl.opening import OpenCrawl, open_crawl
from tidegate.systems.crawl.stages import STAGES, RawState, Stage
from tidegate.systems.crawl.tables import crawl_raws
from tidegate.systems.crawl.targets import MOST_PAGES, CrawlOptions
from tidegate_simulators.marketplace import (
    Behaviour,
    MarketplaceConfig,
    MarketplaceSimulator,
    Politeness,
    RobotsGroup,
    RobotsSettings,
    WorldShape,
    parse_faults,
)

_UNWRITTEN = 0.95
_TELL_EVERY_S = 15.0
_FAULTS = (
    "500=0.002,502=0.002,504=0.001,429=0.001,503=0.001,reset=0.002,truncated=0.001,slow=0.0005,timeout=0.0002,"
    "captcha=0.001,redirect=0.005,loop=0.001,invalid=0.001,wrong=0.001,500@mini_shop=0.02,reset@detail=0.01"
)


class CrawlPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How large, and how rough."""

    products: int = 20_000
    hosts: int = 40
    keywords: int = 20
    identities: int = 100
    delay_ms: int = 100
    """Between two calls to a host."""
    crawl_delay_ms: int = 130
    """What every other host asks for instead."""
    latency_ms: int = 4
    fault_plan: FaultPlan = FaultPlan()
    lease_s: float = 2.0
    """How soon one that died is missed: later than the longest Retry-After that it may have taken with it."""
    faults: str = _FAULTS
    database: SqlName = "postgres"
    seed: int = 1


Tell = Callable[[str], object]


class Campaign:
    """One run of it."""

    def __init__(
        self, plan: CrawlPlan, market: MarketplaceSimulator, crawl: OpenCrawl, tell: Tell, *, faults: CrawlFaults
    ) -> None:
        self._plan, self._market, self._tell, self._trouble = plan, market, tell, faults
        self._crawls, self._database, self._parts = crawl.crawls, crawl.cell.parts.database, crawl.cell.parts
        self._run_ids: list[int] = []
        self.verdict = Verdict(products=plan.products, hosts=plan.hosts)

    async def run(self) -> None:
        """Crawl a world, and the world that comes after it."""
        first = truth_of(self._market)
        if await self._round({}, first):
            self._market.world.advance()
            await self._round(first, truth_of(self._market))
        report = self._market.report()
        self.verdict.breaches += crawl_audit.of_politeness(report)
        self.verdict.impolite, self.verdict.smallest_gap_ms = report.broken, report.smallest_gap_ms
        self.verdict.faults, self.verdict.refused = report.faults, report.refused
        self.verdict.pauses_announced = sum(host.pauses_announced for host in report.hosts)
        self.verdict.lost_executions = await self._database.read(_lost_executions)

    async def _round(self, before: World, now: World) -> bool:
        """One crawl of everything; False where it did not come to an end."""
        began, then = time.monotonic(), self._market.report()
        mark = await self._database.read(crawl_trace.written_so_far)
        ours = [await self._begin(number, url) for number, url in enumerate(self._market.urls)]
        self._run_ids += ours
        watching = asyncio.create_task(self._watch(ours))
        try:
            async with self._trouble.making():
                await until(lambda: self._is_over(ours), "every run ends", reached=lambda: self._reached(ours))
            await until(self._is_quiet, "nothing is left to do", reached=lambda: self._reached(ours))
            is_over = True
        except Stalled as error:
            self.verdict.breaches.append(str(error))
            is_over = False
        finally:
            await end(watching)
        report, took_s = self._market.report(), time.monotonic() - began
        self.verdict.rounds.append(
            Round(
                tasks=await self._database.read(_tasks, ours),
                calls=report.calls - then.calls,
                took_s=round(took_s, 1),
                calls_per_s=round((report.calls - then.calls) / took_s, 1),
                not_modified=report.not_modified - then.not_modified,
            )
        )
        await self._database.read(self._audit, ours, mark, before, now)
        return is_over

    def _audit(self, tx: Transaction, run_ids: Sequence[int], mark: int, before: World, now: World) -> None:
        applied, expected = crawl_trace.applied_after(tx, mark), crawl_audit.changed_parts(before, now)
        breaches, told = self.verdict.breaches, self.verdict.rounds[-1]
        breaches += crawl_audit.of_orphans(tx, run_ids)
        breaches += crawl_audit.of_products(tx, now)
        breaches += crawl_audit.of_applications(applied, expected)
        breaches += crawl_audit.of_order(tx, applied, run_ids)
        told.applied = len(applied)
        if before:
            unchanged = {(key, stage) for key in now.keys() & before.keys() for stage in STAGES} - expected
            told.unchanged_pages = len(unchanged)
            touched = crawl_trace.touched_after(tx, mark)
            told.unwritten = round(crawl_audit.unwritten_share(unchanged, applied, touched), 4)
            if told.unwritten < _UNWRITTEN:
                breaches.append(f"only {told.unwritten:.1%} of the pages that had not changed ended without a write")

    async def _begin(self, number: int, url: str) -> int:
        options = CrawlOptions(url=url, keywords=self._market.world.keywords, pages=MOST_PAGES)
        return await self._crawls.begin(f"market-{number}", options)

    async def _is_over(self, run_ids: Sequence[int]) -> bool:
        return not await self._database.read(_active, run_ids)

    async def _is_quiet(self) -> bool:
        """Neither SQL nor the server has anything that is still to be done."""
        on_the_way = await self._parts.valkey.execute("XLEN", self._parts.jobs.keys.stream)
        waiting = (await self._parts.gate.shard_status()).waiting
        return not (on_the_way or waiting or await self._database.read(_left))

    async def _reached(self, run_ids: Sequence[int]) -> int:
        return await self._database.read(_steps, run_ids)

    async def _watch(self, run_ids: Sequence[int]) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            ended, total = await self._database.read(_progress, run_ids)
            calls, killed, passed_s = self._market.report().calls, self._trouble.killed, time.monotonic() - began
            self._tell(f"{passed_s:6.0f} s  {ended:,} of {total:,} tasks, {calls:,} calls, {killed} workers killed")


def truth_of(market: MarketplaceSimulator) -> dict[tuple[str, str], Truth]:
    """The expected data of all products, in the form in which a crawl stores it."""
    hosts = [url.partition("//")[2] for url in market.urls]
    return {
        (hosts[one.host], str(one.product_id)): Truth(
            str(one.shop_id), {Stage.MINI_SHOP: one.mini_shop, Stage.DETAIL: one.detail, Stage.OPTION: one.options}
        )
        for one in market.all_truth().values()
    }


def config_of(plan: CrawlPlan) -> MarketplaceConfig:
    """A marketplace with the politeness of the plan, without tolerance, and its default limits."""
    world = WorldShape(
        seed=plan.seed,
        hosts=plan.hosts,
        products=plan.products,
        keywords=plan.keywords,
        per_page=1,
        listed_twice=0,
    )
    behaviour = Behaviour(
        latency_ms=plan.latency_ms, faults=parse_faults(plan.faults), hang_s=5, drip_s=0.3, retry_after_s=1, noise=True
    )
    polite = Politeness(delay_s=plan.delay_ms / 1_000)
    return MarketplaceConfig(identities=plan.identities, world=world, behaviour=behaviour, politeness=polite)


async def conduct(plan: CrawlPlan, folder: Path, tell: Tell = lambda _: None) -> Verdict:
    """Make the servers and the marketplace, crawl it, and compare what that left."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(LosableValkey(keeps=True))
        url = await stack.enter_async_context(migrated_database(plan.database, folder))
        wire = await stack.enter_async_context(Proxy(server.port))
        market = await stack.enter_async_context(MarketplaceSimulator(config_of(plan)))
        slower = RobotsSettings(groups=(RobotsGroup(crawl_delay_s=plan.crawl_delay_ms / 1_000),))
        for host in range(1, plan.hosts, 2):
            market.set_robots(slower, host)
        ours: dict[str, Any] = {
            "data_dir": str(folder),
            "database_url": url,
            "valkey_url": server.url,
            "auto_migrate": False,
            "membership": {"lease": plan.lease_s, "renew_every": plan.lease_s / 4},
            "crawl": {"delay": plan.delay_ms / 1_000, "first_rest": 5},
            # Deaths of workers count as attempts, beside the errors of the hosts.
            "collect": {"first_pause": 0.5, "max_attempts": 12},
            "upstream": {"read_timeout": 2, "private_hosts": ["127.0.0.1"]},
        }
        opening = open_crawl(Settings(**ours))
        crawl = await stack.enter_async_context(opening)
        for identity in market.identities:
            await crawl.identities.add(identity.name, identity.headers)
        await crawl_trace.install(crawl.cell.parts.database)
        faults = CrawlFaults(
            plan.fault_plan, plan.seed, server, wire, settings={**ours, "valkey_url": f"redis://127.0.0.1:{wire.port}"}
        )
        stack.push_async_callback(faults.stop)
        await faults.start()
        campaign = Campaign(plan, market, crawl, tell, faults=faults)
        await campaign.run()
        verdict = campaign.verdict
        verdict.killed, verdict.failures = faults.killed, faults.failures
        verdict.valkey_killed, verdict.took_s = faults.valkey_killed, round(time.monotonic() - began, 1)
        return verdict


def _active(tx: Transaction, run_ids: Sequence[int]) -> int:
    run = collection_runs.c
    active = select(func.count()).where(run.id.in_(run_ids), run.status.in_(ACTIVE_RUNS))
    return tx.execute(active).scalar_one()


def _left(tx: Transaction) -> int:
    pending = select(func.count()).where(crawl_raws.c.state == RawState.PENDING)
    return tx.execute(pending).scalar_one() + outbox.depth(tx).pending


def _progress(tx: Transaction, run_ids: Sequence[int]) -> tuple[int, int]:
    run = collection_runs.c
    ended = run.succeeded_jobs + run.failed_jobs
    row = tx.execute(select(func.sum(ended), func.sum(run.total_jobs)).where(run.id.in_(run_ids))).one()
    return int(row[0]), int(row[1])


def _steps(tx: Transaction, run_ids: Sequence[int]) -> int:
    """Only ever more of them: tasks that ended, and writes to products."""
    return _progress(tx, run_ids)[0] + crawl_trace.written_so_far(tx)


def _tasks(tx: Transaction, run_ids: Sequence[int]) -> int:
    return _progress(tx, run_ids)[1]


def _lost_executions(tx: Transaction) -> int:
    lost = select(func.count()).select_from(job_executions).where(job_executions.c.outcome == "lost")
    return tx.execute(lost).scalar_one()


def main() -> int:
    """Run one campaign and print its result."""
    configure_logs("console", "error")
    parser = argparse.ArgumentParser(prog="python -m chaos.crawl", description="A crawl, and kill -9.")
    defaults = CrawlPlan()
    for name in ("products", "hosts", "keywords", "identities", "delay_ms", "crawl_delay_ms", "latency_ms"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(defaults, name))
    rough = defaults.fault_plan
    parser.add_argument("--workers", type=int, default=rough.workers)
    for name in ("kill", "fail", "valkey"):  # on a machine that is busy with other things, less often
        every = f"{name}_every_s"
        parser.add_argument(f"--{name}-every", type=float, dest=every, default=getattr(rough, every), metavar="SECONDS")
    parser.add_argument("--faults", default=defaults.faults, help="as of `tidegate simulate marketplace`")
    parser.add_argument("--database", choices=["sqlite", "postgres"], default=defaults.database)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    fault_plan = FaultPlan(
        **{name: options.pop(name) for name in ("workers", "kill_every_s", "fail_every_s", "valkey_every_s")}
    )
    tell: Tell = (lambda _: None) if as_json else (lambda what: print(what, file=sys.stderr, flush=True))
    with tempfile.TemporaryDirectory(prefix="tidegate-chaos-") as folder:
        verdict = uvloop.run(conduct(CrawlPlan(fault_plan=fault_plan, **options), Path(folder), tell))
    told = msgspec.json.format(msgspec.json.encode(verdict)).decode()
    print(told if as_json else f"{told}\n{'every rule was kept' if verdict.is_well else 'A RULE WAS BROKEN'}")
    return 0 if verdict.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
