"""The cost of twenty browsers with an open dashboard: the engine with and without them, in turn.

One process does everything, as `tidegate up` does: it works, leads, and answers over HTTP. The browsers are another
process. Jobs per second depend on who else uses the machine; the CPU time that this process spends on a job does not.
"""

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.browsers import TOPICS, Seen
from bench.engine import LIMITS, NoNetwork
from bench.figures import Figure, Section
from bench.whole_site import open_site
from tidegate.engine.collection import Collection
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.http.settings import HttpSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments

BROWSERS, JOBS, PAIRS = 20, 240_000, 5
MOST_LOST = 0.02


async def measure() -> Section:
    alone: list[Measured] = []
    watched: list[Measured] = []
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        settings = Settings(data_dir=Path(folder), http=HttpSettings(port=0))
        async with _at_work(settings) as (bench, port):
            await bench.run()  # warm
            for _ in range(PAIRS):
                alone.append(await bench.run())
                async with _browsing(port, seen):
                    watched.append(await bench.run())
    return _section(alone, watched, seen)


class Measured(NamedTuple):
    """Jobs per second of a run, and the CPU time of this process for each job."""

    rate: float
    cpu_us: float


class _Bench:
    """Runs of the same many jobs, one after the other."""

    def __init__(self, collector: Collector, source: NoNetwork) -> None:
        self._collector, self._source = collector, source
        self._ended = asyncio.Event()
        self._runs = 0

    async def note_end(self, run: Run) -> None:
        assert run.succeeded_jobs == self._source.total, run
        self._ended.set()

    async def run(self) -> Measured:
        self._runs += 1
        self._ended.clear()
        gc.collect()
        cpu, began = time.process_time(), time.perf_counter()
        subject = Subject(user_id=f"u{self._runs}", login=f"u{self._runs}")
        await self._collector.orchestrator.begin("bench", subject, pool="pool")
        await self._ended.wait()
        took, spent = time.perf_counter() - began, time.process_time() - cpu
        return Measured(self._source.total / took, spent / self._source.total * 1e6)


@asynccontextmanager
async def _at_work(settings: Settings) -> AsyncGenerator[tuple[_Bench, int]]:
    async with AsyncExitStack() as stack:
        site, collection = await open_site(stack, settings)
        collector, bench = _collector(collection)
        process = build_process(
            collection.parts,
            handlers=collector.handlers,
            services={**collector.services, **site.services},
            leader_services={"recovery": collector.recovery_service},
        )
        running = asyncio.create_task(process.run())
        try:
            yield bench, int(site.binding.url.rpartition(":")[2])
        finally:
            process.stop()
            await running


def _collector(collection: Collection) -> tuple[Collector, _Bench]:
    parts, source = collection.parts, NoNetwork(JOBS)

    async def register() -> None:
        await parts.gate.register("token", pool="pool", limits=LIMITS)

    async def note_end(run: Run) -> None:
        await bench.note_end(run)

    collector = Collector(
        CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)),
        [source],
        caller=source,
        secrets=source,
        register_credentials=register,
        finalizers=[note_end],
        on_moved=collection.change_feed.moved,
    )
    bench = _Bench(collector, source)
    return collector, bench


@asynccontextmanager
async def _browsing(port: int, seen: Seen) -> AsyncGenerator[None]:
    """Twenty browsers, each of which has seen everything once."""
    command = (sys.executable, "-m", "bench.browsers", str(port), str(BROWSERS))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        await _line(process)
        yield
        assert process.stdin is not None
        process.stdin.write(b"\n")
        told = msgspec.json.decode(await _line(process), type=Seen)
        seen.events, seen.bytes = seen.events + told.events, seen.bytes + told.bytes
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the browsers ended")
    return line


def _section(alone: Sequence[Measured], watched: Sequence[Measured], seen: Seen) -> Section:
    # Of each pair, which met the same moment of the machine; and of the pairs the one in the middle.
    cpu = statistics.median(b.cpu_us / a.cpu_us - 1 for a, b in zip(alone, watched, strict=True))
    rate = statistics.median(1 - b.rate / a.rate for a, b in zip(alone, watched, strict=True))
    return Section(
        "Dashboard watchers",
        [
            Figure(f"without watchers: {JOBS:,} jobs, SQLite", _told(alone)),
            Figure(f"{BROWSERS} browsers watch", _told(watched)),
            Figure("CPU of a job, more", f"{cpu:+.1%}", f"< {MOST_LOST:.0%}", cpu < MOST_LOST),
            Figure("jobs/s, fewer", f"{rate:+.1%}", f"< {MOST_LOST:.0%}", rate < MOST_LOST),
            Figure("events and bytes sent to all of them", f"{seen.events:,}; {seen.bytes / 1e6:.1f} MB"),
        ],
        f"{PAIRS} pairs of runs in one process, in turn; medians of the pairs. Topics: {', '.join(TOPICS)}.",
    )


def _told(runs: Sequence[Measured]) -> str:
    rates, cpu = [run.rate for run in runs], statistics.median(run.cpu_us for run in runs)
    return f"{statistics.median(rates):,.0f} jobs/s (best {max(rates):,.0f}), {cpu:.1f} µs of process CPU each"
