"""`make soak`, or `python -m chaos.soak [--minutes M] [--database sqlite|postgres|both] [--seed S] [--json]`.

Collection, snapshots, waiting room, campaigns and crawl run under load on several `tidegate up` processes while faults
are injected at random: kill -9, SIGSTOP for 20 s, Valkey killed, flushed, read-only and out of memory, the database
cut, locked or read-only, the disk full, and upstreams that answer with errors, redirects, nulls and wrong ids.
Afterwards everything is compared. Exit 0 when nothing was lost, applied twice, shown in the wrong order or sent over a
limit, memory did not grow and the log stayed short; 1 otherwise.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from tests.servers.sql import SqlName

from chaos import audit
from chaos.progress import Stalled, until
from chaos.soak import audits
from chaos.soak.deployment import Deployment, open_deployment, settings_of
from chaos.soak.faults import Faults
from chaos.soak.load import Api, Load
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.source_cell import SourceCell
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.systems.github.opening import open_github

_MEMORY_EVERY_S = 5.0
_REPORT_EVERY_S = 30.0
_MEMBERS = 3


class SoakReport(msgspec.Struct, kw_only=True):
    """What happened and what the judges found."""

    database: str
    seed: int
    minutes: float
    faults: dict[str, int]
    load: dict[str, int]
    upstream_faults: dict[str, int]
    github_calls: int
    game_calls: int
    most_game_calls_in_a_second: int
    log_lines_per_s: list[float]
    memory_mb: float
    memory_growth: float | None
    entries_lost_by_flush: int
    """Accepted campaign entries that were not decided when Valkey lost its data, and came too late the second time."""
    uncertain: list[str]
    """Windows that a simulator could not judge, because its event loop stalled."""
    breaches: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether no judge found anything."""
        return not self.breaches


async def soak(database: SqlName, minutes: float, seed: int, every_s: float, folder: Path) -> SoakReport:
    """One soak on one database."""
    async with AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(open_deployment(database, _MEMBERS, folder))
        stack.push_async_callback(deployment.stop)
        await deployment.start()
        async with await Database.open(deployment.database_url) as opened:
            await audit.install(opened)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        load = Load(Api(session, deployment, random.Random(seed)), deployment, seed)
        await load.prepare()
        flushes: list[datetime] = []

        async def flush() -> None:
            flushes.append(datetime.now(UTC))
            await asyncio.to_thread(deployment.valkey.flush)

        faults = Faults(deployment, seed, flush)
        stalled = await _run(deployment, load, faults, minutes, every_s)
        settings = settings_of(
            deployment.upstreams, deployment.valkey.url, deployment.database_url, deployment.folder / "data"
        )
        opening = open_github(Settings(**settings), needs_credential=False)
        collection = await stack.enter_async_context(opening)
        breaches = stalled or await _final_round(deployment, load)
        breaches += await _judge(collection, deployment, load, flushes)
        return _report(deployment, load, faults, breaches, database=database, seed=seed, minutes=minutes)


async def _run(deployment: Deployment, load: Load, faults: Faults, minutes: float, every_s: float) -> list[str]:
    """Load and faults for the given time; then only load, until all that was begun has finished."""
    began = time.monotonic()
    loading = asyncio.create_task(load.run())
    injecting = asyncio.create_task(faults.inject(every_s=every_s))
    watching = asyncio.create_task(_watch(deployment, load, faults, began))
    try:
        await asyncio.wait([loading, injecting], timeout=60 * minutes, return_when=asyncio.FIRST_COMPLETED)
        for task in (loading, injecting):
            if task.done():
                task.result()
        await end(injecting)  # each fault is undone before its task ends
        load.stopping.set()
        return await _finished(loading, load)
    finally:
        await end(watching, loading, injecting)


async def _finished(loading: "asyncio.Task[None]", load: Load) -> list[str]:
    async def is_done() -> bool:
        return loading.done()

    async def reached() -> int:
        return sum(load.counts.values())

    try:
        await until(is_done, "all that was begun is finished", reached=reached, still_s=180)
    except Stalled as error:
        return [str(error)]
    loading.result()
    return []


async def _final_round(deployment: Deployment, load: Load) -> list[str]:
    """One more run of everything without faults, so that what faults of an upstream cost is collected."""
    upstreams = deployment.upstreams
    for simulator in (upstreams.github, upstreams.game, upstreams.market):
        simulator.faults.clear()
    for login in upstreams.github.world.logins():
        await load.collect(login)
    for url in upstreams.market.urls:
        await load.crawl(url)
    return []


async def _judge(collection: SourceCell, deployment: Deployment, load: Load, flushes: list[datetime]) -> list[str]:
    return [
        *await audits.audit_collection(collection, deployment, load),
        *await audits.audit_crawl(collection, deployment),
        *audits.audit_snapshots(deployment, load),
        *await audits.audit_campaigns(collection, load, flushes),
        *await audits.audit_room(collection, load, flushes),
        *audits.audit_processes(deployment.members),
    ]


async def _watch(deployment: Deployment, load: Load, faults: Faults, began: float) -> None:
    reported = 0.0
    while True:
        await asyncio.sleep(_MEMORY_EVERY_S)
        at_s = time.monotonic() - began
        for member in deployment.members:
            member.sample_memory(at_s)
        if at_s - reported >= _REPORT_EVERY_S:
            reported = at_s
            done = ", ".join(f"{count} {what}" for what, count in sorted(load.counts.items()))
            sys.stderr.write(f"{at_s:6.0f} s  {sum(faults.injected.values())} faults; {done}\n")


def _report(
    deployment: Deployment, load: Load, faults: Faults, breaches: list[str], *, database: str, seed: int, minutes: float
) -> SoakReport:
    members, upstreams = deployment.members, deployment.upstreams
    game, github, market = upstreams.game.report(), upstreams.github.report(), upstreams.market.report()
    memory = members[0].memory_kb
    return SoakReport(
        database=database,
        seed=seed,
        minutes=minutes,
        faults=dict(faults.injected),
        load=dict(load.counts),
        upstream_faults={
            f"{name} {kind}": count
            for name, found in (("github", github.faults), ("game", game.faults), ("market", market.faults))
            for kind, count in found.items()
        },
        github_calls=github.calls,
        game_calls=game.calls,
        most_game_calls_in_a_second=game.most_in_a_second,
        log_lines_per_s=[round(member.logged_lines / max(member.lifetime_s, 1), 2) for member in members],
        memory_mb=round(memory[-1][1] / 1024, 1) if memory else 0.0,
        memory_growth=audits.memory_growth(members[0]),
        entries_lost_by_flush=sum(map(len, load.lost.values())),
        uncertain=audits.uncertain_windows(upstreams),
        breaches=breaches,
    )


def main() -> int:
    """Run the soak on each database and print the reports."""
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description="All systems under load and faults.")
    parser.add_argument("--minutes", type=float, default=30.0, help="in all, divided among the databases")
    parser.add_argument("--database", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS", help="mean pause between faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for data and logs, which are kept; default: a temporary one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    configure_logs("console", "error")
    names: list[SqlName] = ["sqlite", "postgres"] if options.database == "both" else [options.database]
    reports: list[SoakReport] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="tidegate-soak-") as temporary:
            folder = Path(options.keep or temporary) / name
            folder.mkdir(parents=True)
            minutes = options.minutes / len(names)
            reports.append(uvloop.run(soak(name, minutes, options.seed, options.every, folder)))
        text = msgspec.json.format(msgspec.json.encode(reports[-1])).decode()
        sys.stdout.write(f"{text}\n" if not options.json else "")
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(reports)).decode() + "\n")
    return 0 if all(report.is_clean for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
