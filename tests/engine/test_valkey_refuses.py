"""Valkey refuses every write for longer than a lease: the processes are alive, so nothing is taken from them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tests.servers.migrated import migrated_file
from tests.servers.valkey import ValkeyServer
from tests.waiting import until
from tidegate.connections import build_context
from tidegate.primitives.membership import MembershipSettings
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey.connection import connected

LEASE_S = 3.0
PRESENCE = MembershipSettings(lease=timedelta(seconds=LEASE_S), renew_every=timedelta(seconds=LEASE_S / 2))
SHELVES = 12

REFUSALS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "out of memory": (("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)),
    "read-only": (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
}


@asynccontextmanager
async def two_processes(url: str, folder: Path, upstream: ShelfUpstream) -> AsyncGenerator[list[Library]]:
    """Both at work on one database and one Valkey."""
    file = await migrated_file(folder / "refusing.db")
    async with AsyncExitStack() as stack:
        libraries: list[Library] = []
        for _ in range(2):
            valkey = await stack.enter_async_context(connected(url))
            database = await stack.enter_async_context(await Database.open(file))
            library = Library(build_context(Settings(membership=PRESENCE), valkey, database), upstream, at_once=SHELVES)
            await stack.enter_async_context(library.working())
            libraries.append(library)
        yield libraries


def now_ms(admin: Redis) -> float:
    """The time of the server."""
    seconds, micros = admin.time()
    return int(seconds) * 1000 + int(micros) / 1000


@pytest.mark.parametrize("refusal", ["out of memory", pytest.param("read-only", marks=pytest.mark.full)])
async def test_no_call_is_repeated_while_valkey_refuses_for_longer_than_a_lease(
    tmp_path: Path, upstream: ShelfUpstream, refusal: str
):
    """Calls are under way all the time: a process that took their messages over would repeat them."""
    refuse, accept = REFUSALS[refusal]
    upstream.shelves = {f"ada-{n}": 1 for n in range(SHELVES)}
    under_way, answers = set[str](), asyncio.get_running_loop().create_future()

    def hold(path: str) -> "asyncio.Future[None] | None":
        if path.startswith("/users"):
            return None
        under_way.add(path)
        return asyncio.shield(answers)

    upstream.before_answer = hold
    with ValkeyServer() as server, server.client() as admin:
        async with two_processes(server.url, tmp_path, upstream) as libraries:
            membership = libraries[0].parts.membership

            async def all_called() -> bool:
                return len(under_way) == SHELVES

            async def remaining() -> list[int]:
                return [member.remaining_ms for member in await membership.members()]

            async def leases_have_ended() -> bool:
                return max(await remaining()) < -1000

            async def leases_were_renewed_twice() -> bool:
                """By then the leader has looked at all of them."""
                return min(await remaining()) + now_ms(admin) > accepted_at_ms + 2 * LEASE_S * 1000

            run_id = await libraries[0].begin()
            await until(all_called)
            admin.execute_command(*refuse)
            await until(leases_have_ended)
            admin.execute_command(*accept)
            accepted_at_ms = now_ms(admin)
            await until(leases_were_renewed_twice)
            answers.set_result(None)
            run = await libraries[0].until(run_id)

    assert (run.succeeded_jobs, run.failed_jobs) == (SHELVES + 1, 0)
    assert set(upstream.calls.values()) == {1}
    assert run.calls == SHELVES + 1
