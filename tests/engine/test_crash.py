"""Workers killed with -9, one after the other, while several runs are under way."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web
from sqlalchemy import and_, func, select

from tests.engine.conftest import POOL
from tests.engine.shelf import HOST, ShelfSource, ShelfUpstream
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_folder
from tests.waiting import look_again, simulated_delay, until
from tidegate.connections import open_context
from tidegate.engine import runs
from tidegate.engine.executions import ExecutionOutcome
from tidegate.engine.lifecycle import RunState
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.source import Subject
from tidegate.engine.tables import job_executions, page_jobs
from tidegate.engine.upstream import Request
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.sql import Database, Transaction, outbox

ROOT = Path(__file__).parents[2]
USERS, SHELVES, ITEMS, LEASE_MS = 3, 4, 60, 2000

pytestmark = pytest.mark.crash


async def start(data_dir: Path, url: str) -> WarmProcess:
    command = (sys.executable, "-m", "tests.engine.process", str(data_dir), url, str(LEASE_MS))
    process = await start_warm(*command, stdout=PIPE, cwd=ROOT)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


def ended_jobs(tx: Transaction) -> dict[str, int]:
    counted = select(page_jobs.c.status, func.count()).group_by(page_jobs.c.status)
    return {row[0]: row[1] for row in tx.execute(counted)}


def succeeded_executions(tx: Transaction) -> list[tuple[int, int]]:
    """The jobs, each with the number of its executions that succeeded by its last claim."""
    last = and_(job_executions.c.job_id == page_jobs.c.id, job_executions.c.fence == page_jobs.c.fence)
    counted = select(page_jobs.c.id, func.count(job_executions.c.call_record)).outerjoin(job_executions, last)
    succeeded = counted.where(job_executions.c.outcome == ExecutionOutcome.SUCCEEDED).group_by(page_jobs.c.id)
    return [(row[0], row[1]) for row in tx.execute(succeeded)]


async def serve(upstream: ShelfUpstream) -> tuple[web.AppRunner, str]:
    """The shelves, over real HTTP, a little slow."""

    async def answer(request: web.Request) -> web.Response:
        await simulated_delay(0.01)
        said = await upstream.fetch(Request(url=HOST + request.path, purpose="test"))
        return web.Response(body=said.body, status=said.status, headers={"x-remaining": said.headers["x-remaining"]})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def kill_one_after_the_other(
    upstream: ShelfUpstream, processes: list[WarmProcess], data_dir: Path, url: str, times: int
) -> None:
    """Each after a further part of the calls that the work needs."""
    calls = USERS * (1 + SHELVES * ITEMS // upstream.per_page)
    for n in range(1, times + 1):
        await until(lambda: upstream.calls.total() >= n * calls // (times + 2))  # noqa: B023 - it is awaited at once
        victim = processes.pop(random.randrange(len(processes)))
        victim.kill()
        await victim.wait()
        processes.append(await start(data_dir, url))


async def until_all_complete(database: Database, run_ids: list[int]) -> list[runs.Run]:
    while True:
        found = [await database.read(runs.get, run_id) for run_id in run_ids]
        if all(run.status is RunState.COMPLETED for run in found):
            return found
        await look_again()


@pytest.mark.smoke
async def test_killed_workers_lose_and_repeat_nothing(tmp_path: Path):
    names = [f"user{u}" for u in range(USERS)]
    upstream = ShelfUpstream({f"{name}-shelf{s}": ITEMS for name in names for s in range(SHELVES)})
    runner, url = await serve(upstream)
    async with open_context(Settings(data_dir=await migrated_folder(tmp_path))) as parts:
        orchestrator = Orchestrator(parts.database, parts.gate, {"shelves": ShelfSource()})
        run_ids = [await orchestrator.begin("shelves", Subject(user_id=name, login=name), pool=POOL) for name in names]
        processes = [await start(tmp_path, url) for _ in range(2)]
        killing = asyncio.create_task(kill_one_after_the_other(upstream, processes, tmp_path, url, times=4))
        ended = await until_all_complete(parts.database, run_ids)
        await killing
        for process in processes:
            process.terminate()
        assert [await process.wait() for process in processes] == [0, 0]

        pages = SHELVES * ITEMS // upstream.per_page
        assert [(run.total_jobs, run.succeeded_jobs, run.failed_jobs) for run in ended] == [
            (1 + pages,) * 2 + (0,)
        ] * USERS
        assert await parts.database.read(ended_jobs) == {"succeeded": USERS * (1 + pages)}
        recorded = await parts.database.read(succeeded_executions)
        assert [count for _, count in recorded] == [1] * USERS * (1 + pages), "each with its request"
        documents = SqlDocuments(parts.database).of("shelves")
        found = Counter([document.id async for document in documents.iterate("item")])
        assert found == Counter(f"{shelf}-{n}" for shelf in upstream.shelves for n in range(ITEMS))
        assert (await parts.database.read(outbox.depth)).pending == 0
        # Only what was under way when a worker died was asked for again: at most what it held.
        assert upstream.calls.total() <= USERS * (1 + pages) + 4 * 50
    await runner.cleanup()
