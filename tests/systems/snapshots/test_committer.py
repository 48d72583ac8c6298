"""Results are written in batches, without much delay."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.systems.snapshots.deployment import Deployment, deployed, until
from tests.systems.snapshots.test_refresh_worker import refresh_request
from tidegate.primitives.coalescer import AlreadyProcessing, Outcome, Published
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots import metrics, store
from tidegate.systems.snapshots.cache import SnapshotCache, WrittenResult
from tidegate.systems.snapshots.committer import FinishedEvent, RetryNote, write_all
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.settings import WorkerSettings
from tidegate.systems.snapshots.transports.protocol import Delivery
from tidegate_simulators.game import GameSimulator


def transactions() -> float:
    [family] = metrics.DB_UPSERT_DURATION.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_count"))


async def test_results_that_arrive_in_quick_succession_are_written_together(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator
):
    lane = WorkerSettings(batch=2, gather=timedelta(seconds=1))
    async with deployed(tmp_path, embedded, sim, high=lane) as deployment:
        before = transactions()
        async with deployment.working("refresh-high"):
            for n in (1, 2):
                await deployment.snapshots.requests.publish(refresh_request(n))
                await until(lambda n=n: sim.calls_of(n))

    assert transactions() - before == 1


async def test_a_stop_does_not_wait_for_further_results(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    lane = WorkerSettings(batch=10, gather=timedelta(seconds=1))
    async with deployed(tmp_path, embedded, sim, high=lane) as deployment:
        await deployment.snapshots.requests.publish(refresh_request(7))
        async with deployment.working("refresh-high"):
            await until(lambda: sim.calls_of(7) == 1)
        row = await deployment.row(7)

    assert row is not None
    assert row.hash is not None


async def test_the_lock_is_held_until_others_can_read_the_result(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    """Who read the old copy after the lock was released would have it called for once more."""
    meanwhile: list[Outcome] = []
    put_written = SnapshotCache.put_written

    async def watched(self: SnapshotCache, written: Sequence[WrittenResult], *, only_known: bool) -> None:
        meanwhile.append(await deployment.snapshots.requests.publish(refresh_request(7)))
        await put_written(self, written, only_known=only_known)

    monkeypatch.setattr(SnapshotCache, "put_written", watched)
    async with deployment.working("refresh-high"):
        asked = await deployment.snapshots.requests.publish(refresh_request(7))
        await until(lambda: meanwhile)

    assert isinstance(asked, Published)
    assert [type(each) for each in meanwhile] == [AlreadyProcessing]
    assert deployment.sim.calls_of(7) == 1


async def test_a_recorded_failure_counts_until_a_result_as_new_succeeds(deployment: Deployment):
    """HIGH overtook LOW, which was just being tried again."""
    hero, mage = SnapshotSubject("character", "hero"), SnapshotSubject("character", "mage")
    delivery = Delivery(value=b"", key=hero.id, deliveries=1, handle="1")
    success = store.Refreshed.of(hero, 5, checked_at=datetime.now(UTC), body=b"{}")
    notes = [RetryNote(hero, 4, "503", 1), RetryNote(mage, 4, "503", 1)]
    done = FinishedEvent(delivery=delivery, received_at=0.0, refreshed=success)

    await deployment.database.transaction(write_all, [done, *notes], True)
    assert await deployment.troubled() == [(mage, "RETRYING", "UPSTREAM_5XX", 1)]
    await deployment.database.transaction(write_all, notes, True)
    assert await deployment.troubled() == [(mage, "RETRYING", "UPSTREAM_5XX", 1)]
