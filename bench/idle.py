"""The cost of an idle process: a whole process (heartbeat, leader, timekeeper, relay, a worker) with nothing to do."""

import asyncio
import resource
import tempfile
from pathlib import Path

from bench.figures import Figure, Section
from tidegate.connections import open_context
from tidegate.process import build_process
from tidegate.runtime.waiting import unless
from tidegate.settings import Settings
from tidegate.system import Context

SECONDS = 60.0


class IdleWorker:
    """Waits for jobs that never come."""

    def __init__(self, parts: Context) -> None:
        self._consumer = parts.jobs.consumer(parts.owner)

    async def run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await unless(stopping, self._consumer.read(count=100, within_s=300))


async def measure() -> Section:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with open_context(Settings(data_dir=Path(folder))) as parts:
            process = build_process(parts, services={"worker": IdleWorker(parts)})
            running = asyncio.create_task(process.run())
            await asyncio.sleep(15)  # until all services wait, and the leader has checked once for work of others
            commands, cpu_s = await _commands(parts), _cpu_s()
            await asyncio.sleep(SECONDS)
            commands, cpu_s = await _commands(parts) - commands - 1, _cpu_s() - cpu_s
            process.stop()
            await running
    per_s, share = commands / SECONDS, cpu_s / SECONDS * 100
    figures = [
        Figure("server commands, those inside scripts included", f"{per_s:.2f}/s", "≤ 0.5/s", per_s <= 0.5),
        Figure("CPU of the process", f"{share:.2f} %", "≤ 0.2 %", share <= 0.2),
    ]
    return Section("Idle", figures, f"Worker, timekeeper and relay wait for {SECONDS:.0f} s in one process.")


async def _commands(parts: Context) -> int:
    return (await parts.valkey.execute("INFO", "stats"))["total_commands_processed"]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
