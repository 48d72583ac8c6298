"""What a worker holds in memory, from its first job to its 200,000th, in a process of its own.

The source needs no network, so jobs come as fast as they can. What Python and the libraries take is in it.
"""

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import uvloop

from bench.engine import LIMITS, NoNetwork
from bench.figures import Figure, Section
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments

JOBS = 200_000
LARGEST_MB, MOST_GROWTH_MB = 150, 15
SETTLED = 0.2
"""The share of the jobs after which caches are full, and memory has to be flat."""


class Sample(msgspec.Struct, frozen=True):
    """One measurement of the process."""

    jobs: int
    mb: float


async def measure() -> Section:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.memory", stdout=PIPE)
    said, _ = await process.communicate()
    samples = msgspec.json.decode(said, type=list[Sample])
    largest = max(sample.mb for sample in samples)
    settled = next(sample for sample in samples if sample.jobs >= SETTLED * JOBS)
    growth = samples[-1].mb - settled.mb
    told = ", ".join(f"{sample.mb:.0f} MB at {sample.jobs:,}" for sample in _some(samples))
    return Section(
        "Memory",
        [
            Figure(
                f"largest, over {samples[-1].jobs:,} jobs",
                f"{largest:.0f} MB",
                f"< {LARGEST_MB} MB",
                largest < LARGEST_MB,
            ),
            Figure(
                f"growth after the first {SETTLED:.0%} of them",
                f"{growth:+.0f} MB",
                f"≤ {MOST_GROWTH_MB} MB",
                growth <= MOST_GROWTH_MB,
            ),
            Figure("on the way", told),
        ],
        "The resident memory of one worker process that leads and works, on SQLite.",
    )


def _some(samples: list[Sample]) -> list[Sample]:
    """Five of them, evenly."""
    return [samples[round(n * (len(samples) - 1) / 4)] for n in range(5)]


async def _work(folder: Path) -> list[Sample]:
    """Do all the jobs, and look now and then."""
    async with open_context(Settings(data_dir=folder)) as parts:
        source = NoNetwork(JOBS)
        environment = CollectDependencies(
            parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)
        )

        async def register() -> None:
            await parts.gate.register("token", pool="pool", limits=LIMITS)

        collector = Collector(environment, [source], caller=source, secrets=source, register_credentials=register)
        process = build_process(
            parts,
            handlers=collector.handlers,
            services=collector.services,
            leader_services={"recovery": collector.recovery_service},
        )
        running = asyncio.create_task(process.run())
        run_id = await collector.orchestrator.begin("bench", Subject(user_id="u", login="u"), pool="pool")
        samples: list[Sample] = []
        while (run := await collector.orchestrator.show(run_id)).status in ACTIVE_RUNS:
            samples.append(Sample(run.ended_jobs, _resident_mb()))
            await asyncio.sleep(0.25)
        samples.append(Sample(run.ended_jobs, _resident_mb()))
        process.stop()
        await running
        return samples


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2


if __name__ == "__main__":
    configure_logs(level="error")
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_work(Path(folder)))))
