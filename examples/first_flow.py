"""Many jobs, two tokens with a small quota, and the primitives of Tidegate between them, in one small program.

    python examples/first_flow.py

An upstream allows each token 25 calls in any 3-second window. Four runs want 40 pages each. The gate gives permits, a
worker makes the calls and commits each page with an event, the timekeeper opens the gate when a window ends, the relay
delivers the events. At the end the upstream says whether its limit was ever broken.
"""

import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import uvloop
from rich.console import Console

from tidegate import Context, Event, Handler, Settings, Transaction, configure_logs, open_context, outbox
from tidegate.engine import Allowance, CredentialLimits
from tidegate.primitives.gate import Admitted, Job, settlement
from tidegate.process import build_process

POOL, TOKENS = "demo", ("token of ada", "token of grace")
RUNS, PAGES = ("run-1", "run-2", "run-3", "run-4"), 40
LIMIT, WINDOW_S = 25, 3

console = Console(highlight=False)


@dataclass
class Upstream:
    """A rate-limited API: a window begins with its first call; the API counts calls and reports what is left."""

    opened_s: dict[str, float] = field(default_factory=dict[str, float])
    used: Counter[str] = field(default_factory=Counter[str])
    calls: int = 0
    refused: int = 0

    async def call(self, token: str) -> Allowance:
        await asyncio.sleep(0.02)  # the network
        now_s = time.time()
        if now_s >= self.opened_s.get(token, 0) + WINDOW_S:
            self.opened_s[token], self.used[token] = now_s, 0
        self.calls += 1
        self.used[token] += 1
        self.refused += self.used[token] > LIMIT
        ends_s = self.opened_s[token] + WINDOW_S
        return Allowance(
            limit=LIMIT,
            remaining=max(0, LIMIT - self.used[token]),
            window=int(ends_s) + 1,
            resets_in_ms=round((ends_s - now_s) * 1000) + 1,
        )


class Worker:
    """Reads jobs that have their permit, calls, commits, and only then settles."""

    def __init__(self, parts: Context, upstream: Upstream) -> None:
        self._parts, self._upstream = parts, upstream

    async def run(self, stopping: asyncio.Event) -> None:
        consumer = self._parts.jobs.consumer(self._parts.owner)
        stopped = asyncio.create_task(stopping.wait())
        while not stopping.is_set():
            reading = asyncio.create_task(consumer.read(count=20, within_s=60))
            await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
                break
            messages = reading.result()
            admitted = [Admitted.from_fields(m.id, m.fields, m.deliveries) for m in messages]
            said = await asyncio.gather(*(self._upstream.call(one.credential) for one in admitted))
            if admitted:
                await self._parts.database.transaction(commit_pages, admitted)
                results = [settlement(one, allowance=each) for one, each in zip(admitted, said, strict=True)]
                await self._parts.gate.settle(results)
                consumer.settled(one.message for one in admitted)
        await consumer.leave()


def commit_pages(tx: Transaction, admitted: list[Admitted]) -> None:
    """Here a real program writes its rows; the events go with them, or not at all."""
    outbox.add(tx, *(Event("page.collected", key=one.payload, payload={"page": one.job}) for one in admitted))


class Tally:
    """The result of the events: pages per run."""

    def __init__(self) -> None:
        self.pages: defaultdict[str, set[str]] = defaultdict(set)
        self.complete = asyncio.Event()

    async def count(self, event: Event) -> None:
        self.pages[event.key].add(event.payload["page"])
        if sum(map(len, self.pages.values())) == len(RUNS) * PAGES:
            self.complete.set()


async def show_progress(parts: Context, tally: Tally) -> None:
    """A line whenever the picture has changed."""
    seen = None
    while True:
        done = "  ".join(f"{run.removeprefix('run-')}: {len(tally.pages[run]):2}/{PAGES}" for run in RUNS)
        waits = [
            f"{one.name.removeprefix('token of ')} opens in {(bucket.opens_in_ms or 0) / 1000:.1f} s"
            for one in (await parts.gate.status(POOL)).credentials
            for bucket in one.buckets
            if bucket.reason == "exhausted"
        ]
        if done != seen:
            console.print(f"  {done}   [dim]{', '.join(waits)}[/]", soft_wrap=True)
        seen = done
        await asyncio.sleep(0.5)


async def main() -> None:
    """Run the flow on embedded parts in a folder of its own."""
    configure_logs("console", "warning")
    upstream, tally = Upstream(), Tally()
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        async with open_context(Settings(data_dir=Path(folder))) as parts:
            info, jobs = parts.valkey.info, len(RUNS) * PAGES
            console.print(f"[bold]{info.product} {info.version}[/] and SQLite run in {folder}")
            console.print(
                f"{len(RUNS)} runs want {jobs} pages; each of {len(TOKENS)} tokens: {LIMIT} per {WINDOW_S} s\n"
            )
            limits = CredentialLimits(concurrency=10, floor=0, window=timedelta(seconds=WINDOW_S))
            for token in TOKENS:
                await parts.gate.register(token, pool=POOL, limits=limits)
            process = build_process(
                parts,
                handlers=[Handler("page.collected", "tally", tally.count)],
                services={"worker": Worker(parts, upstream)},
            )
            async with process.running():
                progress = asyncio.create_task(show_progress(parts, tally))
                await parts.gate.enqueue(
                    [Job(job=f"{run} page {n}", pool=POOL, run=run, payload=run) for run in RUNS for n in range(PAGES)]
                )
                await tally.complete.wait()
                await asyncio.sleep(0.6)
                progress.cancel()
            depth = await parts.database.read(outbox.depth)
    if upstream.refused or upstream.calls != jobs or depth.pending:
        raise SystemExit(f"the demo's own proof failed: {upstream}, {depth}")
    console.print(f"\n[green]done[/]: {upstream.calls} calls for {jobs} pages, limit broken {upstream.refused} times,")
    console.print(f"      every page's event handled, {depth.pending} events left, {depth.dead} dead letters")


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
