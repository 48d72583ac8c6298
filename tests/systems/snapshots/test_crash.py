"""Workers that are killed at any moment: their events go to others, and nothing is lost."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_folder
from tests.systems.snapshots.deployment import CALM, Deployment, until
from tests.systems.snapshots.refreshing_process import settings_for
from tidegate.connections import open_context
from tidegate.core.priority import Priority
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.service import open_snapshots
from tidegate_simulators.game import Behaviour, GameConfig, GameSimulator, LimitSettings

EVENTS = 200


@asynccontextmanager
async def worker(
    folder: Path, valkey: Valkey, sim: GameSimulator, *workers: str, clock_offset_s: float = 0
) -> AsyncGenerator[WarmProcess]:
    place = (str(folder), valkey.url, sim.url, sim.api_key, str(clock_offset_s), *workers)
    process = await start_warm(sys.executable, "-m", "tests.systems.snapshots.refreshing_process", *place)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.smoke
@pytest.mark.crash
async def test_a_killed_worker_loses_nothing(tmp_path: Path, embedded: Valkey):
    slow = GameSimulator(GameConfig(world=CALM, limits=LimitSettings(), behaviour=Behaviour(latency_ms=150)))
    async with slow as sim:
        settings = settings_for(await migrated_folder(tmp_path), embedded.url, sim.url, sim.api_key)
        async with open_context(settings) as parts, open_snapshots(parts) as snapshots:
            deployment = Deployment(sim, parts, snapshots)
            refresh_requests = [_refresh_request(key) for key in range(1, EVENTS + 1)]
            await snapshots.requests.publish_many(refresh_requests)
            for _ in range(2):
                async with worker(tmp_path, embedded, sim) as doomed:
                    made = sim.report().calls
                    await until(lambda before=made: sim.report().calls > before + 20)
                    doomed.kill()
            assert await deployment.pending() > 0

            process = snapshots.process()
            running = asyncio.create_task(process.run())
            try:
                await until(lambda: _is_done(deployment))
            finally:
                process.stop()
                await running
            rows = [await deployment.row(key) for key in range(1, EVENTS + 1)]
            dead = await snapshots.transport.dead_count()

        assert all(row is not None for row in rows)
        assert dead == 0
        assert sim.report().broken == 0


def _refresh_request(key: int) -> RefreshRequest:
    return RefreshRequest(
        subject=SnapshotSubject("character", str(key)), priority=Priority.HIGH, reason=Reason.USER_REQUEST
    )


async def _is_done(deployment: Deployment) -> bool:
    return await deployment.pending() == 0
