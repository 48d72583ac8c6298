"""The whole ground at once: several processes, one killed after the other, and nothing lost, doubled or exceeded."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_folder
from tests.waiting import look_again, until
from tests.whole.upstream import Upstream
from tidegate.connections import open_context
from tidegate.primitives.gate import CredentialLimits, Job
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.schema import handled_events
from tidegate.system import Context

ROOT = Path(__file__).parents[2]
JOBS, LIMIT, WINDOW_S = 300, 60, 4.0

pytestmark = pytest.mark.crash


async def start(data_dir: Path, port: int) -> WarmProcess:
    command = (sys.executable, "-m", "tests.whole.worker", str(data_dir), str(port))
    process = await start_warm(*command, stdout=PIPE, cwd=ROOT)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


def handled_by(tx: Transaction, handler: str) -> int:
    count = select(func.count()).select_from(handled_events).where(handled_events.c.handler == handler)
    return tx.execute(count).scalar_one()


async def nothing() -> AsyncIterator[Sequence[Job]]:
    for page in list[list[Job]]():
        yield page


async def until_done(parts: Context) -> None:
    while await parts.database.read(handled_by, "recorder") < JOBS:
        await look_again()


async def kill_one_after_the_other(upstream: Upstream, processes: list[WarmProcess], data_dir: Path, port: int) -> None:
    for n in range(1, 5):
        await until(lambda: upstream.calls >= n * JOBS // 6)  # noqa: B023 - it is awaited at once
        victim = processes.pop(random.randrange(len(processes)))
        victim.kill()
        await victim.wait()
        processes.append(await start(data_dir, port))


async def test_processes_are_killed_and_every_job_is_done_once_within_the_limit(tmp_path: Path):
    upstream = Upstream(LIMIT, WINDOW_S, latency_s=0.05)
    server = await upstream.serve()
    port = server.sockets[0].getsockname()[1]
    async with server, open_context(Settings(data_dir=await migrated_folder(tmp_path))) as parts:
        # These workers repeat the calls of a killed one under its permits, so the floor must hold what one can hold.
        limits = CredentialLimits(concurrency=10, floor=10, floor_share=1, window=timedelta(seconds=WINDOW_S))
        for credential in ("a", "b"):
            await parts.gate.register(credential, pool="pool", limits=limits)
        jobs = [Job(job=f"job-{n}", pool="pool", run=f"run-{n % 7}") for n in range(JOBS)]
        await parts.gate.enqueue(jobs)
        processes = [await start(tmp_path, port) for _ in range(3)]
        killing = asyncio.create_task(kill_one_after_the_other(upstream, processes, tmp_path, port))
        await until_done(parts)
        await killing
        for process in processes:
            process.terminate()
        assert [await process.wait() for process in processes] == [0, 0, 0]

        assert await parts.database.read(handled_by, "worker") == JOBS
        assert await parts.database.read(handled_by, "recorder") == JOBS
        depth = await parts.database.read(outbox.depth)
        assert (depth.pending, depth.dead) == (0, 0)
        await parts.gate.rebuild(nothing())
        assert (await parts.gate.shard_status()).waiting == 0
        assert upstream.violations == 0
        assert JOBS <= upstream.calls <= JOBS + 4 * 5
