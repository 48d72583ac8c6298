"""Readers are answered at once with the current state, and waiting readers are released by the refresh."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from prometheus_client import Counter

from tests.systems.snapshots.deployment import Deployment, deployed, until
from tests.waiting import patience, stopwatch
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.priority import Priority
from tidegate.core.telemetry import metrics
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.metrics import SNAPSHOT_READS
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.reads import Freshness, SnapshotAnswer
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate_simulators.game import GameSimulator

TTL = timedelta(seconds=1.5)
"""Longer than a refresh takes on a busy machine, from its request to its reader."""


async def test_a_cold_subject_is_updating_and_then_fresh_with_the_true_data(deployment: Deployment):
    async with deployment.working():
        first = await deployment.read(7)
        assert (first.freshness, first.body, first.update_queued) == (Freshness.UPDATING, None, True)
        assert first.estimated_wait_ms is not None

        answer = await deployment.until_fresh(7)

    assert deployment.is_true(7, answer)
    assert deployment.sim.calls_of(7) == 1
    assert await deployment.pending() == 0


async def test_the_answer_follows_the_contract_and_contains_the_snapshot_unchanged(deployment: Deployment):
    cold = msgspec.json.decode((await deployment.read(9)).encode())
    async with deployment.working():
        answer = await deployment.until_fresh(9)
    fresh = msgspec.json.decode(answer.encode())

    fields = {"snapshot", "freshness", "lastUpdatedAt", "lastCheckedAt", "updateQueued", "estimatedWaitMs", "failure"}
    assert cold.keys() == fresh.keys() == fields
    assert (cold["snapshot"], cold["freshness"], cold["lastCheckedAt"]) == (None, "UPDATING", None)
    assert fresh["snapshot"]["id"] == 9
    assert (fresh["freshness"], fresh["updateQueued"], fresh["estimatedWaitMs"]) == ("FRESH", False, None)
    assert fresh["lastUpdatedAt"] == fresh["lastCheckedAt"]
    assert answer.body is not None
    assert answer.body in answer.encode()


async def test_a_thousand_concurrent_readers_cause_one_call(deployment: Deployment):
    looks, asked = _count(SNAPSHOT_READS.labels("sql")), _count(metrics.DEDUP_COALESCE_HIT)
    async with deployment.working():
        answers = await asyncio.gather(*(deployment.wait(3) for _ in range(1000)))

    assert {answer.freshness for answer in answers} == {Freshness.FRESH}
    assert deployment.sim.calls_of(3) == 1
    assert _count(SNAPSHOT_READS.labels("sql")) - looks <= 5  # one look for all, and a few while they waited
    assert _count(metrics.DEDUP_COALESCE_HIT) - asked <= 5  # one of them asked for all


async def test_a_stale_snapshot_is_returned_while_it_is_refreshed(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    brief = timedelta(milliseconds=300)
    async with deployed(tmp_path, embedded, sim, ttl=brief) as deployment:
        async with deployment.working():
            old = await deployment.wait(5)
        sim.change(5)
        stale = await until(lambda: _stale(deployment, 5))
        async with deployment.working():
            new = await until(lambda: _changed(deployment, 5, old.kept.hash))

    assert (stale.freshness, stale.update_queued) == (Freshness.STALE, True)
    assert stale.body == old.body != new.body
    assert deployment.is_true(5, new)


async def test_an_unchanged_snapshot_gets_a_new_check_time_and_causes_no_loop(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator
):
    async with deployed(tmp_path, embedded, sim, ttl=timedelta(milliseconds=200)) as deployment:
        elapsed_s = stopwatch()
        async with deployment.working():
            first = await deployment.wait(5)
        await until(lambda: _stale(deployment, 5))
        async with deployment.working():
            second = await until(lambda: _checked_again(deployment, 5, first))
            for _ in range(50):
                assert (await deployment.read(5)).body == first.body
        row = await deployment.row(5)

    assert row is not None
    assert second.kept.updated_ms == first.kept.updated_ms
    assert second.kept.checked_ms is not None
    assert first.kept.checked_ms is not None
    assert second.kept.checked_ms > first.kept.checked_ms
    assert row.last_updated_at is not None
    assert row.last_checked_at is not None
    assert row.last_checked_at > row.last_updated_at
    assert sim.calls_of(5) <= 3 + elapsed_s() / 0.2


async def test_a_missing_object_of_the_upstream_is_remembered(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    async with deployed(tmp_path, embedded, sim) as deployment, deployment.working():
        answer = await deployment.wait(99_999)
        again = [await deployment.read(99_999) for _ in range(5)]

    assert (answer.freshness, answer.body, answer.update_queued) == (Freshness.NOT_FOUND, None, False)
    assert {each.freshness for each in again} == {Freshness.NOT_FOUND}
    assert sim.calls_of(99_999) == 1


async def test_another_process_reads_a_refreshed_snapshot_without_sql(
    tmp_path: Path, embedded: Valkey, deployment: Deployment
):
    async with deployment.working():
        await deployment.until_fresh(11)

    async with deployed(tmp_path, embedded, deployment.sim) as other:
        await other.database.close()
        answer = await other.read(11)

    assert deployment.is_true(11, answer)


async def test_a_snapshot_that_the_server_lost_is_read_from_sql_and_copied_again(
    tmp_path: Path, embedded: Valkey, deployment: Deployment
):
    async with deployment.working():
        await deployment.until_fresh(11)
    await embedded.execute("FLUSHALL")

    async with deployed(tmp_path, embedded, deployment.sim) as other:
        answer = await other.read(11)
    async with deployed(tmp_path, embedded, deployment.sim) as third:
        await third.database.close()
        again = await third.read(11)

    assert deployment.is_true(11, answer)
    assert again.body == answer.body


async def test_a_refresh_in_another_process_replaces_the_entry_in_memory(
    tmp_path: Path, embedded: Valkey, deployment: Deployment
):
    long = timedelta(minutes=5)
    async with deployed(tmp_path, embedded, deployment.sim, local_cache_for=long) as other, deployment.working():
        old = await other.until_fresh(4)
        deployment.sim.change(4)
        await other.snapshots.requests.publish(_refresh_request(4, known_version=old.kept.version))
        new = await until(lambda: _changed(other, 4, old.kept.hash))

    assert deployment.is_true(4, new)


async def test_a_waiting_reader_is_released_soon_after_the_commit(deployment: Deployment):
    async with deployment.working():
        await deployment.until_fresh(1)  # everything is warm
        async with patience():
            released = await deployment.wait(2, within_s=3600)

    assert released.freshness is Freshness.FRESH


async def test_a_reader_whose_wait_ends_gets_the_current_state(deployment: Deployment):
    answer = await deployment.wait(6, within_s=0.1)

    assert answer.freshness is Freshness.UPDATING


async def test_an_invalid_subject_is_refused_without_a_call(deployment: Deployment):
    with pytest.raises(NotFound):
        await deployment.snapshots.reader.read("pirate", "1")
    for nonsense in ("", "seven", "0", "1/2", "-1", "1" * 200, "{1}"):
        with pytest.raises(InvalidArgument):
            await deployment.read(nonsense)

    assert await deployment.pending() == 0


async def test_reads_are_recorded_for_prefetch(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    async with deployed(tmp_path, embedded, sim) as deployment, deployment.working():
        await deployment.until_fresh(8)
        before = await deployment.row(8)
    async with deployed(tmp_path, embedded, sim) as deployment:
        await deployment.read(8)
    async with deployed(tmp_path, embedded, sim) as deployment:
        after = await deployment.row(8)

    assert before is not None
    assert before.last_asked_at is None
    assert after is not None
    assert after.last_asked_at is not None


def _count(counter: Counter) -> float:
    [family] = counter.collect()
    return family.samples[0].value


def _refresh_request(key: int, *, known_version: int = 0) -> RefreshRequest:
    subject = SnapshotSubject("character", str(key))
    return RefreshRequest(
        subject=subject, priority=Priority.HIGH, reason=Reason.USER_REQUEST, known_version=known_version
    )


async def _stale(deployment: Deployment, key: int) -> SnapshotAnswer | None:
    answer = await deployment.read(key)
    return answer if answer.freshness is Freshness.STALE else None


async def _checked_again(deployment: Deployment, key: int, before: SnapshotAnswer) -> SnapshotAnswer | None:
    answer = await deployment.read(key)
    return answer if answer.kept.checked_ms != before.kept.checked_ms else None


async def _changed(deployment: Deployment, key: int, before: str | None) -> SnapshotAnswer | None:
    answer = await deployment.read(key)
    return answer if answer.kept.hash != before else None
