"""Twenty-five users, two rationed tokens, and a GitHub of our own that counts every call.

    python examples/github_demo.py

Starts the simulator with small quotas, so that waiting is seen, collects everybody, and lets the simulator say what was
spent, what a perfect collector would have spent, and whether a limit was broken.
"""

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import uvloop
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidegate.assembly import Parts, build_process, open_parts
from tidegate.collect.collector import Collector, Ground
from tidegate.collect.lifecycle import ACTIVE_RUNS
from tidegate.collect.source import Subject
from tidegate.documents import DocumentStore, SqlDocuments
from tidegate.flow.gate import CredentialLimits
from tidegate.github import GithubSource
from tidegate.settings import Settings
from tidegate.simulators.github import (
    ESSENTIAL,
    GithubSimulator,
    LimitSettings,
    Manners,
    SimulatorConfig,
    WorldShape,
)
from tidegate.telemetry.logs import configure
from tidegate.upstream import UpstreamClient

USERS, QUOTA, WINDOW_S, LATENCY_MS = 25, 200, 8, 20
POOL = "demo"
LIMITS = CredentialLimits(concurrency=20, floor=0, window=timedelta(seconds=WINDOW_S))

console = Console(highlight=False)


class Tokens:
    """The tokens of the operators, who own the pool."""

    def __init__(self, simulator: GithubSimulator) -> None:
        self._tokens = {name: simulator.token_of(name) for name in simulator.world.operators()}

    async def enrol(self, parts: Parts) -> None:
        for name in self._tokens:
            await parts.gate.enrol(name, pool=POOL, limits=LIMITS)

    async def secret_of(self, credential: str) -> str:
        return self._tokens[credential]


async def watch(parts: Parts, collector: Collector, run_ids: list[int]) -> None:
    """Redraw the picture until every run is over."""
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            runs = [await collector.orchestrator.show(run_id) for run_id in run_ids]
            over = [run for run in runs if run.status not in ACTIVE_RUNS]
            pages = f"{sum(run.ended_jobs for run in runs)}/{sum(run.total_jobs for run in runs)}"
            title = f"{len(over)} of {len(runs)} users complete, {pages} pages"
            table = Table(title=title, box=None, title_justify="left")
            for column in ("token", "left", "in flight", "waits for"):
                table.add_column(column)
            for one in (await parts.gate.status(POOL)).credentials:
                for bucket in one.buckets:
                    wait = f"{bucket.reason}, opens in {bucket.opens_in_ms / 1000:.1f} s" if bucket.opens_in_ms else ""
                    table.add_row(one.name, str(bucket.remaining), str(one.in_flight), wait)
            live.update(table)
            if len(over) == len(runs):
                return
            await asyncio.sleep(0.25)


async def prove(simulator: GithubSimulator, documents: DocumentStore) -> bool:
    """The simulator's word: what was spent and needed, whether a limit was broken, whether anything is missing."""
    report, truths = simulator.report(include=ESSENTIAL), [simulator.truth(name) for name in simulator.world.logins()]
    spent, needed = sum(report.spent.values()), report.needed.core if report.needed else 0
    there = {kind: await documents.count(kind) for kind in ("repository", "issue", "commit", "event")}
    true = {
        "repository": sum(len(each.repositories) for each in truths),
        "issue": sum(len(found.issues) for each in truths for found in each.repositories),
        "commit": sum(len(found.commits) for each in truths for found in each.repositories),
        "event": sum(len(each.events) for each in truths),
    }
    console.print(f"calls spent {spent}, needed by a perfect collector {needed}, limits broken {report.broken}")
    console.print("documents: " + ", ".join(f"{kind} {there[kind]:,}/{true[kind]:,}" for kind in there), soft_wrap=True)
    return report.broken == 0 and there == true


async def main() -> None:
    """Collect everybody on embedded parts in a folder of its own."""
    configure("console", "error")
    config = SimulatorConfig(
        world=WorldShape(users=USERS),
        limits=LimitSettings(quota=QUOTA, window_s=WINDOW_S),
        manners=Manners(latency_ms=LATENCY_MS),
    )
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-demo-")))
        simulator = await stack.enter_async_context(GithubSimulator(config))
        parts = await stack.enter_async_context(open_parts(Settings(data_dir=folder)))
        client = await stack.enter_async_context(UpstreamClient())
        tokens, documents = Tokens(simulator), SqlDocuments(parts.database)
        console.print(f"[bold]A GitHub of our own[/] at {simulator.url}: {USERS} users")
        console.print(f"2 tokens, each with {QUOTA} calls per {WINDOW_S} s, so waiting is seen\n")
        collector = Collector(
            Ground(parts.database, parts.gate, parts.jobs, parts.owner, documents),
            [GithubSource(simulator.url)],
            caller=client,
            secrets=tokens,
            enrol_credentials=lambda: tokens.enrol(parts),
        )
        process = build_process(
            parts, handlers=collector.handlers, services=collector.services, duties={"recovery": collector.duty}
        )
        began = time.monotonic()
        subjects = [Subject(user_id=login, login=login) for login in simulator.world.logins()]
        run_ids = [await collector.orchestrator.begin("github", subject, pool=POOL) for subject in subjects]
        running = asyncio.create_task(process.run())
        watching = asyncio.create_task(watch(parts, collector, run_ids))
        await asyncio.wait([running, watching], return_when="FIRST_COMPLETED")
        was_stopped = running.done()
        watching.cancel()
        process.stop()
        await running
        if was_stopped:
            raise SystemExit(130)
        console.print(f"\ncollected in {time.monotonic() - began:.0f} s")
        if not await prove(simulator, documents):
            raise SystemExit("the demo's own proof failed")
    console.print("\nThe same with the real one: GITHUB_TOKEN=... .venv/bin/tidegate collect LOGIN")


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
