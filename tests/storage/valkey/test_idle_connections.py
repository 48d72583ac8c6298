"""Connections that were needed once are closed when they are not needed any more."""

import asyncio

import pytest

from tests.waiting import until
from tidegate.storage.valkey import Valkey, client_connections
from tidegate.storage.valkey.connection import connected


async def clients(watching: Valkey) -> int:
    return int((await watching.execute("INFO", "clients"))["connected_clients"])


async def test_idle_connections_of_ended_readers_are_closed(embedded: Valkey, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_connections, "SPAN_S", 0.05)
    key = embedded.unit("idle").key("nothing")
    async with connected(embedded.url) as valkey:
        before = await clients(embedded)
        reads = [asyncio.create_task(valkey.execute_blocking("BLPOP", key, 60, within_s=60)) for _ in range(50)]
        await until(lambda: _are_more(embedded, before + 49))
        await valkey.execute("RPUSH", key, *range(50))
        await asyncio.gather(*reads)

        await until(lambda: _are_fewer(embedded, before + 10))
        assert await valkey.execute_blocking("BLPOP", valkey.unit("idle").key("none"), 0.01, within_s=1) is None


async def test_a_frequently_used_connection_stays_open(embedded: Valkey, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_connections, "SPAN_S", 0.01)
    async with connected(embedded.url) as valkey:
        await asyncio.gather(*(valkey.execute("PING") for _ in range(40)))
        ids = {await valkey.execute("CLIENT", "ID") for _ in range(200)}

    assert len(ids) <= 2


async def _are_more(watching: Valkey, count: int) -> bool:
    return await clients(watching) > count


async def _are_fewer(watching: Valkey, count: int) -> bool:
    return await clients(watching) < count
