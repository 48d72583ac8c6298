"""A whole deployment for tests: a simulated game, a Valkey server, a SQLite file, readers and workers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from pydantic import SecretStr

from tests.servers.migrated import migrated_folder
from tests.waiting import PATIENCE_S, look_again
from tidegate.connections import build_context, open_database
from tidegate.engine.upstream import UpstreamSettings
from tidegate.primitives.circuit_breaker import CircuitBreakerSettings
from tidegate.primitives.limiter import LimiterSettings
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Context
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.reads import Freshness, SnapshotAnswer
from tidegate.systems.snapshots.service import Snapshots, open_snapshots
from tidegate.systems.snapshots.settings import GameSettings, SnapshotSettings
from tidegate_simulators.game import Behaviour, GameConfig, GameSimulator, LimitSettings, Tempo, WorldShape

CALM = WorldShape(
    subjects=10_000, missing=0, tempi=(Tempo(share=1, every_s=None),), body_bytes=24_000, kept_bytes=9_000
)
"""Nothing changes by itself, and everybody exists; answers are small, so that tests are quick."""
QUICK = LimiterSettings(quiet_start=timedelta(0), pace=timedelta(milliseconds=10), use_by=timedelta(seconds=2))
"""Permits last long enough for a busy machine."""
LOCAL_CACHE_FOR = timedelta(minutes=5)
"""A local copy is held to the end of a test, however slow the machine is."""
WITHIN_S = PATIENCE_S


def game(world: WorldShape = CALM, **limits: Any) -> GameSimulator:
    return GameSimulator(GameConfig(world=world, limits=LimitSettings(**limits), behaviour=Behaviour(hang_s=1)))


def snapshot_settings(sim: GameSimulator, **given: Any) -> SnapshotSettings:
    ttl = given.pop("ttl", timedelta(minutes=15))
    given.setdefault("local_cache_for", LOCAL_CACHE_FOR)
    reached = GameSettings(url=sim.url, api_key=SecretStr(sim.api_key), ttl=ttl)
    return SnapshotSettings(game=reached, first_pause=timedelta(milliseconds=20), **given)


@dataclass
class Deployment:
    """One process's hold on it; others may be opened on the same servers."""

    sim: GameSimulator
    parts: Context
    snapshots: Snapshots

    @property
    def database(self) -> Database:
        return self.parts.database

    async def read(self, key: int | str) -> SnapshotAnswer:
        return await self.snapshots.reader.read("character", str(key))

    async def wait(self, key: int | str, within_s: float = WITHIN_S) -> SnapshotAnswer:
        return await self.snapshots.reader.wait("character", str(key), within_s)

    async def until_fresh(self, key: int | str) -> SnapshotAnswer:
        answer = await self.wait(key)
        assert answer.freshness is Freshness.FRESH, answer.freshness
        return answer

    async def row(self, key: int | str) -> store.SnapshotRow | None:
        subject = SnapshotSubject("character", str(key))
        return (await self.database.read(store.get_many, [subject])).get(subject)

    async def troubled(self) -> list[tuple[SnapshotSubject, str, str, int]]:
        return await self.database.read(store.failing_subjects)

    def is_true(self, key: int, answer: SnapshotAnswer) -> bool:
        """Whether a snapshot is what the game has."""
        truth = self.sim.truth(key)
        assert truth is not None
        assert answer.body is not None
        return msgspec.json.decode(answer.body) == truth.kept

    async def pending(self) -> int:
        """Events that are not done, in both topics."""
        return sum([(await stream.status()).depth for stream in self.snapshots.recoverable])

    @asynccontextmanager
    async def working(self, *names: str) -> AsyncGenerator[None]:
        """The workers, from start to an orderly stop."""
        stopping = asyncio.Event()
        wanted = names or tuple(self.snapshots.workers)
        tasks = [asyncio.create_task(self.snapshots.workers[name].run(stopping), name=name) for name in wanted]
        try:
            yield
        finally:
            stopping.set()
            async with asyncio.timeout(WITHIN_S):
                await asyncio.gather(*tasks)


@asynccontextmanager
async def deployed(
    folder: Path,
    valkey: Valkey,
    sim: GameSimulator,
    *,
    limiter: LimiterSettings = QUICK,
    breaker: CircuitBreakerSettings | None = None,
    **snapshots: Any,
) -> AsyncGenerator[Deployment]:
    """A process's hold on a deployment whose data lies in `folder`; the simulator runs already."""
    settings = Settings(
        data_dir=await migrated_folder(folder),
        auto_migrate=True,
        limiter=limiter,
        breaker=breaker or CircuitBreakerSettings(),
        upstream=UpstreamSettings(read_timeout=timedelta(seconds=2)),
        snapshots=snapshot_settings(sim, **snapshots),
    )
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings))
        parts = build_context(settings, valkey, database)
        opened = await stack.enter_async_context(open_snapshots(parts))
        yield Deployment(sim, parts, opened)


async def until(holds: Callable[[], Any], *, within_s: float = WITHIN_S) -> Any:
    """Until something holds that nobody tells of; returns what it gave."""
    async with asyncio.timeout(within_s):
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await look_again()
