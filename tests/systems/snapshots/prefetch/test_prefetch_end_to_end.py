"""Prefetching in a real deployment: planner, coalescer, streams, workers, a simulated game."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from sqlalchemy import select, update

from tests.systems.snapshots.deployment import Deployment, deployed, game, until
from tidegate.http.settings import HttpSettings
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.api.routes import SnapshotRoutes
from tidegate.systems.snapshots.archive.archiver import NightlyArchive
from tidegate.systems.snapshots.prefetch.planner import PrefetchPlanner
from tidegate.systems.snapshots.service import OpenSnapshots
from tidegate.systems.snapshots.settings import PrefetchSettings, SnapshotSettings
from tidegate.systems.snapshots.tables import prefetch_hours, snapshots
from tidegate.systems.snapshots.topics import SnapshotsOverviewReader

KEYS = range(1, 31)


def make_old(tx: Transaction, age: timedelta) -> None:
    old = datetime.now(UTC) - age
    tx.execute(update(snapshots).values(last_checked_at=old, last_asked_at=old, next_due_at=old))


async def test_subjects_without_readers_are_refreshed_when_they_are_due(deployment: Deployment):
    planner, nightly = deployment.snapshots.scheduled
    assert isinstance(planner, PrefetchPlanner)
    assert isinstance(nightly, NightlyArchive)
    async with deployment.working():
        await asyncio.gather(*map(deployment.until_fresh, KEYS))
        await deployment.database.transaction(make_old, timedelta(days=9))
        calls, now = deployment.sim.report().calls, datetime.now(UTC)

        stopping = asyncio.Event()
        keeping = asyncio.create_task(Timekeeper(deployment.parts.timers.wakeup, [planner]).run(stopping))

        async def all_are_fresh() -> bool:
            rows = [await deployment.row(key) for key in KEYS]
            return all(
                row is not None and row.last_checked_at is not None and row.last_checked_at > now for row in rows
            )

        await until(all_are_fresh)
        stopping.set()
        await keeping

    overview = SnapshotsOverviewReader(deployment.snapshots)
    status = await SnapshotRoutes(deployment.snapshots, HttpSettings(), overview).show_prefetch()
    assert deployment.sim.report().calls - calls == len(KEYS)
    assert (status.spent, status.due_now) == (len(KEYS), 0)
    assert status.next_due_at is not None
    assert status.next_due_at > now


async def test_two_concurrent_planners_cause_one_call_per_subject(deployment: Deployment):
    async with deployment.working():
        await asyncio.gather(*map(deployment.until_fresh, KEYS))
    await deployment.database.transaction(make_old, timedelta(days=9))
    calls, settings = deployment.sim.report().calls, deployment.parts.settings.section(SnapshotSettings).prefetch
    planners = [PrefetchPlanner(deployment.database, deployment.snapshots.requests, settings) for _ in range(2)]

    await asyncio.gather(*(planner.fire() for planner in planners))
    assert await deployment.pending() == len(KEYS)
    async with deployment.working():

        async def nothing_is_left() -> bool:
            return await deployment.pending() == 0

        await until(nothing_is_left)

    assert deployment.sim.report().calls - calls == len(KEYS)


async def test_hourly_counts_older_than_the_setting_are_deleted(tmp_path: Path, embedded: Valkey):
    kept = PrefetchSettings(hours_kept=timedelta(days=3))
    async with game() as sim, deployed(tmp_path, embedded, sim, prefetch=kept) as deployment:
        today = deployment.database.clock.now().date()
        days = [today - timedelta(days=age) for age in (0, 2, 10)]
        rows = [{"day": day, "hour": 1, "spent": 5} for day in days]
        await deployment.database.transaction(lambda tx: tx.insert_many(prefetch_hours, rows))

        [rule] = OpenSnapshots(deployment.parts, deployment.snapshots).retention_rules()

        assert await rule.prune(100) == 1
        assert sorted(await deployment.database.read(_days_with_calls)) == sorted(days[:2])


def _days_with_calls(tx: Transaction) -> list[date]:
    return list(tx.execute(select(prefetch_hours.c.day)).scalars())
