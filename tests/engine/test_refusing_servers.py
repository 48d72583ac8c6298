"""A server that answers, and will not serve us for a while: read-only after a failover, out of memory, no replicas."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tests.servers.migrated import migrated_file, migrated_on
from tests.servers.refusing import Waits, noise, refusing, set_read_only, told
from tests.servers.valkey import ValkeyServer
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.runtime import outage as policy
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected


class Held:
    """The calls for shelves have arrived at the upstream, and get no answer until the test says so."""

    def __init__(self, upstream: ShelfUpstream) -> None:
        self._upstream, self._answer = upstream, asyncio.get_running_loop().create_future()
        upstream.before_answer = self._hold

    def _hold(self, path: str) -> "asyncio.Future[None] | None":
        return None if path.startswith("/users") else self._answer

    async def arrived(self, count: int) -> None:
        await until(lambda: self._upstream.calls.total() >= count)

    def release(self) -> None:
        self._answer.set_result(None)


async def until(it_is_so: Callable[[], bool]) -> None:
    async with patience():
        while not it_is_so():
            await look_again()


async def test_results_are_held_while_the_database_refuses_and_no_call_is_repeated(
    embedded: Valkey, upstream: ShelfUpstream, monkeypatch: pytest.MonkeyPatch
):
    waits, held = Waits(), Held(upstream)
    monkeypatch.setattr(policy, "OUTAGE_PAUSES", waits)
    async with migrated_on("postgres") as (server, name), await Database.open(server.url(name)) as database:
        library = Library(build_context(Settings(), embedded, database), upstream)
        with capture_logs() as lines:
            async with library.working():
                run_id = await library.begin()
                await held.arrived(1 + 3)
                await set_read_only(server, name, "on")
                held.release()
                await until(lambda: waits.count > 20)
                assert (await library.parts.jobs.status()).pending == 3, "nothing is acknowledged"
                assert upstream.calls.total() == 1 + 3

                await set_read_only(server, name, "off")
                run = await library.until(run_id)
        assert (run.succeeded_jobs, run.failed_jobs, len(await library.items())) == (8, 0, 10)

    assert set(upstream.calls.values()) == {1}
    (refusal,) = told(lines, "server.refused")
    assert "Point the URL at the primary server" in refusal
    assert not told(lines, "collect.round_failed")
    assert waits.longest > 20, "the pauses grow"
    assert noise(lines) == []


@asynccontextmanager
async def at_work(library: Library) -> AsyncGenerator[list["asyncio.Task[None]"]]:
    """The services of a collector, without anybody who starts them again when they fall."""
    stopping = asyncio.Event()
    services = [asyncio.create_task(one.run(stopping)) for one in library.collector.services.values()]
    try:
        yield services
        stopping.set()
        await asyncio.gather(*services)
    finally:
        await end(*services)


async def test_running_calls_continue_while_valkey_refuses_and_none_is_repeated(
    tmp_path: Path, upstream: ShelfUpstream, monkeypatch: pytest.MonkeyPatch
):
    waits, held = Waits(), Held(upstream)
    monkeypatch.setattr(policy, "OUTAGE_PAUSES", waits)
    with ValkeyServer() as server:
        url = await migrated_file(tmp_path / "l.db")
        async with connected(server.url) as valkey, await Database.open(url) as database:
            library = Library(build_context(Settings(), valkey, database), upstream)
            await library.register()
            async with at_work(library) as services:
                run_id = await library.begin()
                await held.arrived(1 + 3)
                with capture_logs() as lines:
                    with refusing(server):
                        await until(lambda: waits.count > 20 or services[1].done())
                        assert not services[1].done(), "the worker fell"
                        held.release()
                        await until_succeeded(library, run_id, 1 + 3)
                    await until_succeeded(library, run_id, 8)

    assert set(upstream.calls.values()) == {1}
    (refusal,) = told(lines, "server.refused")
    assert "lower its min-replicas-to-write" in refusal


async def until_succeeded(library: Library, run_id: int, jobs: int) -> None:
    async with patience():
        while (await library.orchestrator.show(run_id)).succeeded_jobs < jobs:
            await look_again()
