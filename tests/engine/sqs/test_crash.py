"""Workers and forwarders killed with -9, at the worst of moments."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.engine.conftest import POOL
from tests.engine.shelf import HOST, ShelfSource, ShelfUpstream
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_folder
from tests.servers.proxy import Proxy
from tests.servers.sqs import ENVIRONMENT, SqsServer
from tests.waiting import look_again, patience
from tidegate.connections import open_context
from tidegate.engine import runs
from tidegate.engine.lifecycle import RunState
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.source import Subject
from tidegate.engine.upstream import Request
from tidegate.settings import Settings
from tidegate.system import Context

ROOT = Path(__file__).parents[2]
LEASE_MS = 1000
ITEMS, JOBS = 10, 6

pytestmark = pytest.mark.crash


class Deployment:
    """A run of one shelf, page after page, and processes that work on it."""

    def __init__(self, data_dir: Path, parts: Context, sqs: SqsServer, url: str, upstream: ShelfUpstream) -> None:
        self.data_dir, self.parts, self.sqs, self.url, self.upstream = data_dir, parts, sqs, url, upstream
        self.upstream_url = ""
        self._killing = AsyncExitStack()

    async def start(self, role: str, endpoint: str | None = None) -> WarmProcess:
        arguments = (
            str(self.data_dir),
            self.upstream_url,
            str(LEASE_MS),
            endpoint or self.sqs.endpoint,
            self.url,
            role,
        )
        process = await start_warm(
            *(sys.executable, "-m", "tests.engine.sqs.process", *arguments),
            stdout=PIPE,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
        )
        assert process.stdout is not None
        await process.stdout.readline()
        return process

    async def begin(self) -> int:
        orchestrator = Orchestrator(self.parts.database, self.parts.gate, {"shelves": ShelfSource()})
        return await orchestrator.begin("shelves", Subject(user_id="ada", login="ada"), pool=POOL)

    async def assert_all_is_done(self, run_id: int, *, repeated: int, lost: int) -> None:
        async with patience():
            while (run := await self.parts.database.read(runs.get, run_id)).status is not RunState.COMPLETED:
                await look_again()
        assert (run.total_jobs, run.succeeded_jobs, run.failed_jobs) == (JOBS, JOBS, 0)
        assert self.upstream.calls.total() == JOBS + repeated
        [credential] = (await self.parts.gate.status(POOL)).credentials
        assert (credential.in_flight, [bucket.lost for bucket in credential.buckets]) == (0, [lost])
        assert (await self.parts.jobs.status())[:4] == (0, 0, 0, 0)


@asynccontextmanager
async def serve(upstream: ShelfUpstream) -> AsyncGenerator[str]:
    """The shelves, over real HTTP."""

    async def answer(request: web.Request) -> web.Response:
        said = await upstream.fetch(Request(url=HOST + request.path, purpose="test"))
        return web.Response(body=said.body, status=said.status, headers={"x-remaining": said.headers["x-remaining"]})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def deployment(tmp_path: Path, sqs: SqsServer, url: str) -> AsyncGenerator[Deployment]:
    upstream = ShelfUpstream({"ada-novels": ITEMS})
    async with open_context(Settings(data_dir=await migrated_folder(tmp_path))) as parts, serve(upstream) as address:
        made = Deployment(tmp_path, parts, sqs, url, upstream)
        made.upstream_url = address
        yield made


async def kill(process: WarmProcess) -> None:
    process.kill()
    await process.wait()


async def test_a_call_of_a_killed_worker_is_repeated_once(deployment: Deployment):
    called, never = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(path: str) -> "asyncio.Future[None] | None":
        if path == "/shelves/ada-novels/2" and not called.is_set():
            called.set()
            return never
        return None

    deployment.upstream.before_answer = hold
    run_id = await deployment.begin()
    victim = await deployment.start("works")
    await called.wait()
    heir = await deployment.start("works")
    try:
        await kill(victim)
        # Nobody knows whether the upstream counted the call of the one that died: so it counts.
        await deployment.assert_all_is_done(run_id, repeated=1, lost=1)
        assert deployment.upstream.calls["/shelves/ada-novels/2"] == 2
        assert deployment.sqs.held(deployment.url) == (0, 0)
    finally:
        await kill(heir)
        never.cancel()


async def test_tickets_of_a_killed_forwarder_are_sent_by_another(deployment: Deployment):
    """It was in nobody's hands: no call is counted for it."""
    async with Proxy(deployment.sqs.port) as wire:
        await wire.refuse()
        run_id = await deployment.begin()
        victim = await deployment.start("forwards", f"http://127.0.0.1:{wire.port}")
        async with patience():
            while (await deployment.parts.jobs.status()).pending == 0:
                await look_again()
        heir = await deployment.start("works")
        try:
            await kill(victim)
            await deployment.assert_all_is_done(run_id, repeated=0, lost=0)
        finally:
            await kill(heir)
