"""Where a snapshot is found; a popular one stays in memory, although entries expire soon."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.systems.snapshots.deployment import Deployment, until
from tidegate.core.errors import DatabaseUnavailable
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots import lookup as looking
from tidegate.systems.snapshots.cache import CachedSnapshot, LocalCache, SnapshotCache
from tidegate.systems.snapshots.lookup import SnapshotLookup
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.valkey_guard import ValkeyGuard


def guard(valkey: Valkey) -> ValkeyGuard:
    return ValkeyGuard(valkey, CircuitBreaker("server"), valkey.unit("snapshots"))


_READERS = 32
"""More than read at the same time."""


class CountingCache(SnapshotCache):
    """Records how many subjects each request to the server names."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment.parts.valkey, keep=timedelta(hours=1))
        self.asked: list[int] = []

    async def get_many(self, subjects: Sequence[SnapshotSubject]) -> dict[SnapshotSubject, CachedSnapshot]:
        self.asked.append(len(subjects))
        return await super().get_many(subjects)


async def test_entries_that_become_due_within_a_moment_are_looked_up_together(deployment: Deployment):
    async with deployment.working():
        await asyncio.gather(deployment.until_fresh(7), deployment.until_fresh(8))
    now, cache = [0.0], CountingCache(deployment)
    local = LocalCache(most_bytes=10**6, keep_ms=1000, now_ms=lambda: now[0])
    lookup = SnapshotLookup(
        local,
        cache,
        deployment.database,
        server=guard(deployment.parts.valkey),
        sql_breaker=CircuitBreaker("database"),
    )
    await asyncio.gather(*(lookup.find(SnapshotSubject("character", key)) for key in "78"))
    cache.asked.clear()
    now[0] = 900.0
    for key in "78":
        assert lookup.held(("character", key)) is not None
        for _ in range(20):  # a request without a delay would be sent now
            await asyncio.sleep(0)
    await until(lambda: cache.asked)
    await lookup.close()

    assert cache.asked == [2]


async def test_a_constantly_read_snapshot_is_looked_up_again_in_the_background(deployment: Deployment):
    async with deployment.working():
        first = (await deployment.until_fresh(7)).kept
    now, cache = [0.0], CountingCache(deployment)
    lookup = SnapshotLookup(
        LocalCache(most_bytes=10**6, keep_ms=1000, now_ms=lambda: now[0]),
        cache,
        deployment.database,
        server=guard(deployment.parts.valkey),
        sql_breaker=CircuitBreaker("database"),
    )
    await lookup.find(SnapshotSubject("character", "7"))
    for now[0] in (900.0, 1800.0, 2700.0):
        cache.asked.clear()
        held = lookup.held(("character", "7"))
        assert held is not None
        assert held.version == first.version
        await until(lambda: cache.asked)
        await lookup.close()  # which waits for the look that is under way
    now[0] = 3700.0
    assert lookup.held(("character", "7")) is None, "nobody read it for as long as it is held"


async def test_a_database_timeout_counts_as_unknown(deployment: Deployment, monkeypatch: pytest.MonkeyPatch):
    """Everybody who reads from it is busy, and stays so."""
    monkeypatch.setattr(looking, "_SQL_WITHIN", timedelta(0))
    over = threading.Event()
    busy = [asyncio.create_task(deployment.database.read(lambda _: over.wait(30))) for _ in range(_READERS)]
    await asyncio.sleep(0)  # they stand before us in the line of the readers

    try:
        with pytest.raises(DatabaseUnavailable, match="did not answer within 0 s"):
            await deployment.read(7)
    finally:
        over.set()
        await asyncio.gather(*busy)


async def test_a_damaged_copy_is_replaced_by_the_row(deployment: Deployment):
    """Looks of one moment go to the server together: one that cannot be read must not leave the others waiting."""
    async with deployment.working():
        await asyncio.gather(deployment.until_fresh(7), deployment.until_fresh(8))
    valkey, subject = deployment.parts.valkey, SnapshotSubject("character", "7")
    shelf = SnapshotCache(valkey, keep=timedelta(hours=1))
    await valkey.execute("HSET", shelf.place(subject), "version", "none", "checked_ms", "none")
    local = LocalCache(most_bytes=10**6, keep_ms=1000)
    lookup = SnapshotLookup(
        local, shelf, deployment.database, server=guard(valkey), sql_breaker=CircuitBreaker("database")
    )

    async with asyncio.timeout(60):
        found = await asyncio.gather(*(lookup.find(SnapshotSubject("character", key)) for key in "78"))
    await lookup.close()

    assert all(each.body_size for each in found)
