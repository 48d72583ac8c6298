"""Results are ordered by when their requests were sent; a worker that lost its events drops their results."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from tests.processes.at_work import at_work
from tests.servers.migrated import migrated_folder
from tests.systems.snapshots.deployment import CALM, Deployment, deployed, until
from tests.systems.snapshots.refreshing_process import settings_for
from tests.systems.snapshots.test_crash import worker
from tests.systems.snapshots.test_refresh_worker import refresh_request
from tidegate.connections import open_context
from tidegate.core.clock import from_ms
from tidegate.core.errors import ServerRefused, ValkeyUnavailable
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import Coalescer
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots import committer
from tidegate.systems.snapshots import lookup as looking
from tidegate.systems.snapshots.cache import CachedSnapshot, SnapshotCache, WrittenResult
from tidegate.systems.snapshots.model import SnapshotSubject, unpack
from tidegate.systems.snapshots.reads import Freshness, Queued, SnapshotAnswer
from tidegate.systems.snapshots.service import open_snapshots
from tidegate.systems.snapshots.settings import SnapshotSettings
from tidegate_simulators.game import Behaviour, FaultKind, GameConfig, GameSimulator

WITHIN_S = 60.0
SUBJECT, MARKER = 7, 8


@asynccontextmanager
async def slow_game(*, latency_ms: float = 0, drip_s: float = 5) -> AsyncGenerator[GameSimulator]:
    behaviour = Behaviour(latency_ms=latency_ms, drip_s=drip_s, jitter=0)
    async with GameSimulator(GameConfig(world=CALM, behaviour=behaviour)) as sim:
        yield sim


@pytest.mark.crash
@pytest.mark.parametrize("clock_offset_s", [2.0, -2.0])
async def test_a_worker_frozen_during_a_call_does_not_overwrite_its_successor(
    tmp_path: Path, embedded: Valkey, clock_offset_s: float
):
    """Readers and SQL keep what was asked for last, whatever the clock of the frozen worker says."""
    async with slow_game(latency_ms=500) as sim:
        settings = settings_for(await migrated_folder(tmp_path), embedded.url, sim.url, sim.api_key)
        async with open_context(settings) as parts, open_snapshots(parts) as snapshots:
            deployment = Deployment(sim, parts, snapshots)
            async with worker(tmp_path, embedded, sim, clock_offset_s=clock_offset_s) as frozen:
                await snapshots.requests.publish(refresh_request(SUBJECT))
                await until(lambda: sim.calls_of(SUBJECT) == 1, within_s=WITHIN_S)
                frozen.send_signal(signal.SIGSTOP)  # the answer is on its way, and says what the subject was
                new = f"version {sim.change(SUBJECT)}"
                async with at_work(snapshots.process()):
                    stored = await until(lambda: _stored(deployment, SUBJECT), within_s=WITHIN_S)

                frozen.send_signal(signal.SIGCONT)
                # Only the other process can serve this one, and in order.
                await snapshots.requests.publish(refresh_request(MARKER))
                await until(lambda: _stored(deployment, MARKER), within_s=WITHIN_S)
            afterwards = await _stored(deployment, SUBJECT)
            async with deployed(tmp_path, embedded, sim) as other:
                copy = await other.read(SUBJECT)

    assert (stored, afterwards) == (new, new)
    assert copy.body is not None
    assert _version(copy.body) == new


async def test_a_slow_answer_does_not_overwrite_one_requested_later(
    tmp_path: Path, embedded: Valkey, monkeypatch: pytest.MonkeyPatch
):
    """Although its event is the newer one: LOW was sent after HIGH, since nothing told it that it was obsolete."""

    async def unknown(*_: object) -> list[bool]:
        raise ValkeyUnavailable("away")

    monkeypatch.setattr(Coalescer, "are_obsolete", unknown)
    async with slow_game(drip_s=3) as sim, deployed(tmp_path, embedded, sim) as deployment:
        for priority in (Priority.LOW, Priority.HIGH):
            await deployment.snapshots.requests.publish(refresh_request(SUBJECT, priority))
        sim.faults.inject(FaultKind.SLOW, subject=SUBJECT)
        async with deployment.working("refresh-high"):
            await until(lambda: sim.calls_of(SUBJECT) == 1, within_s=WITHIN_S)
            new = f"version {sim.change(SUBJECT)}"
            async with deployment.working("refresh-low"):
                first = await until(lambda: _stored(deployment, SUBJECT), within_s=WITHIN_S)
                await until(lambda: _is_done(deployment), within_s=WITHIN_S)
        afterwards = await _stored(deployment, SUBJECT)

    assert (first, afterwards) == (new, new)


@pytest.mark.smoke
@pytest.mark.crash
@pytest.mark.parametrize("offset_s", [2.0, 60.0, -2.0, -60.0])
async def test_results_of_a_process_with_a_wrong_clock_are_ordered_by_the_servers_time(
    tmp_path: Path, embedded: Valkey, monkeypatch: pytest.MonkeyPatch, offset_s: float
):
    """Both events are published first, so that only the times of the permits say which result is the newer one.

    The process with the wrong clock sends first if that clock is ahead, and last if it is behind.
    """

    async def unknown(*_: object) -> list[bool]:
        raise ValkeyUnavailable("away")

    monkeypatch.setattr(Coalescer, "are_obsolete", unknown)  # LOW is not skipped
    async with slow_game() as sim:
        settings = settings_for(await migrated_folder(tmp_path), embedded.url, sim.url, sim.api_key)
        async with open_context(settings) as parts, open_snapshots(parts) as snapshots:
            deployment = Deployment(sim, parts, snapshots)
            for priority in (Priority.LOW, Priority.HIGH):
                await snapshots.requests.publish(refresh_request(SUBJECT, priority))
            workers = (
                worker(tmp_path, embedded, sim, "refresh-high", clock_offset_s=offset_s),
                deployment.working("refresh-low"),
            )
            began = await _server_time(embedded)
            async with workers[0] if offset_s > 0 else workers[1]:
                await until(lambda: _pending_is(deployment, 1), within_s=WITHIN_S)
            new = f"version {sim.change(SUBJECT)}"
            async with workers[1] if offset_s > 0 else workers[0]:
                await until(lambda: _is_done(deployment), within_s=WITHIN_S)
            ended = await _server_time(embedded)
            stored, row = await _stored(deployment, SUBJECT), await deployment.row(SUBJECT)
            copy = await deployment.read(SUBJECT)

    assert stored == new
    assert copy.body is not None
    assert _version(copy.body) == new
    assert row is not None
    assert row.last_checked_at is not None
    assert began <= row.last_checked_at <= ended


@pytest.mark.parametrize("fault", [None, FaultKind.BAD_REQUEST])
async def test_a_result_of_an_event_taken_over_by_another_worker_is_dropped(
    tmp_path: Path, embedded: Valkey, fault: FaultKind | None
):
    """Be it a result or a failure; the other worker brings its own."""
    async with slow_game(latency_ms=300) as sim, deployed(tmp_path, embedded, sim) as deployment:
        if fault is not None:
            sim.faults.inject(fault, subject=SUBJECT)
        await deployment.snapshots.requests.publish(refresh_request(SUBJECT))
        async with deployment.working("refresh-high"):
            await until(lambda: sim.calls_of(SUBJECT) == 1, within_s=WITHIN_S)
            [high, _] = deployment.snapshots.recoverable
            assert await high.take_over(deployment.parts.owner) == 1
            await until(lambda: sim.calls_of(SUBJECT) == 2, within_s=WITHIN_S)
            await until(lambda: _is_done(deployment), within_s=WITHIN_S)
        row, letters = await deployment.row(SUBJECT), await deployment.snapshots.transport.dead_count()

    assert row is not None
    assert letters == 0


async def test_an_event_is_acknowledged_when_its_copy_is_up_to_date(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    """Whoever dies before leaves the event to others, and nobody an old copy."""
    pending: list[int] = []
    put = SnapshotCache.put_written

    async def failing_once(self: SnapshotCache, written: Sequence[WrittenResult], *, only_known: bool) -> None:
        pending.append(await deployment.pending())
        if len(pending) == 1:
            raise ValkeyUnavailable("away")
        await put(self, written, only_known=only_known)

    monkeypatch.setattr(SnapshotCache, "put_written", failing_once)
    await deployment.snapshots.requests.publish(refresh_request(SUBJECT))
    async with deployment.working("refresh-high"):
        await until(lambda: _is_done(deployment), within_s=WITHIN_S)

    assert pending == [1, 1]
    await deployment.database.close()
    assert (await deployment.read(SUBJECT)).freshness is Freshness.FRESH


async def test_when_no_copy_can_be_written_the_old_one_is_removed(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    async with deployment.working("refresh-high"):
        await deployment.until_fresh(SUBJECT)
        new = f"version {deployment.sim.change(SUBJECT)}"

        async def refused(*_: object, **__: object) -> None:
            raise ServerRefused("Valkey", "out of memory", remedy="Give it more.")

        monkeypatch.setattr(SnapshotCache, "put_written", refused)
        await deployment.snapshots.refresh("character", str(SUBJECT))
        await until(lambda: _is_done(deployment), within_s=WITHIN_S)

    subject = SnapshotSubject("character", str(SUBJECT))
    assert (
        await SnapshotCache(
            deployment.parts.valkey, keep=deployment.parts.settings.section(SnapshotSettings).cache_for
        ).get(subject)
        is None
    )
    answer = await until(lambda: _changed(deployment, new), within_s=WITHIN_S)
    assert answer.freshness is Freshness.FRESH


async def test_a_late_copy_is_not_written_where_none_exists(deployment: Deployment, monkeypatch: pytest.MonkeyPatch):
    """Something newer may have come and gone; SQL knows."""
    monkeypatch.setattr(committer, "MARKED_FOR_S", 0.0)
    await deployment.snapshots.requests.publish(refresh_request(SUBJECT))
    async with deployment.working("refresh-high"):
        await until(lambda: _is_done(deployment), within_s=WITHIN_S)

    subject = SnapshotSubject("character", str(SUBJECT))
    assert await deployment.row(SUBJECT) is not None
    assert (
        await SnapshotCache(
            deployment.parts.valkey, keep=deployment.parts.settings.section(SnapshotSettings).cache_for
        ).get(subject)
        is None
    )


async def test_a_read_after_a_change_does_not_share_an_earlier_lookup(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    """And the look that began before does not put the old one over the new."""
    async with deployment.working("refresh-high"):
        old = (await deployment.until_fresh(SUBJECT)).kept
        subject, lookup = SnapshotSubject("character", str(SUBJECT)), deployment.snapshots.reader._lookup  # pyright: ignore[reportPrivateUsage]
        get_many, began, go_on = SnapshotCache.get_many, asyncio.Event(), asyncio.Event()

        async def slowly(
            self: SnapshotCache, subjects: Sequence[SnapshotSubject]
        ) -> dict[SnapshotSubject, CachedSnapshot]:
            found = await get_many(self, subjects)
            began.set()
            await go_on.wait()
            return found

        discard = lookup.discard
        monkeypatch.setattr(lookup, "discard", _ignore)  # the feed could forget the new one again at any moment
        discard([subject.id])  # it is held no more
        monkeypatch.setattr(looking, "_PATIENCE_S", WITHIN_S)
        monkeypatch.setattr(looking, "_SERVER_WITHIN_S", WITHIN_S)
        with monkeypatch.context() as patch:
            patch.setattr(SnapshotCache, "get_many", slowly)
            early = asyncio.create_task(lookup.find(subject))
            await began.wait()
        deployment.sim.change(SUBJECT)
        await deployment.snapshots.requests.publish(refresh_request(SUBJECT, known_version=old.version))
        await until(lambda: _is_done(deployment), within_s=WITHIN_S)
        discard([subject.id])
        try:
            async with asyncio.timeout(WITHIN_S):
                late = await lookup.find(subject)
        finally:
            go_on.set()

    assert late.version > old.version
    assert (await early).version == late.version, "a later look was quicker"
    held = lookup.held(("character", str(SUBJECT)))
    assert held is not None
    assert held.version == late.version


def _ignore(moved: Collection[str] | None) -> None:
    """In place of what handles the change feed."""


async def test_a_client_is_never_sent_an_older_state(deployment: Deployment):
    async with deployment.working("refresh-high"):
        old = await deployment.until_fresh(SUBJECT)
        await deployment.snapshots.refresh("character", str(SUBJECT))
        new = await until(lambda: _newer(deployment, old), within_s=WITHIN_S)

    stale = SnapshotAnswer(new.kept, Freshness.STALE, Queued.NO, None)
    assert old.is_news_after(None)
    assert new.is_news_after(old)
    assert stale.is_news_after(new)
    assert not new.is_news_after(new)
    assert not old.is_news_after(new)


async def _stored(deployment: Deployment, key: int) -> str | None:
    row = await deployment.row(key)
    return None if row is None or row.body is None else _version(unpack(row.body))


def _version(body: bytes) -> str:
    return f"version {msgspec.json.decode(body)['version']}"


async def _is_done(deployment: Deployment) -> bool:
    return await _pending_is(deployment, 0)


async def _pending_is(deployment: Deployment, count: int) -> bool:
    return await deployment.pending() == count


async def _server_time(valkey: Valkey) -> datetime:
    """The time by the clock of the server, in whole milliseconds as in permits."""
    seconds, microseconds = await valkey.execute("TIME")
    return from_ms(int(seconds) * 1000 + int(microseconds) // 1000)


async def _changed(deployment: Deployment, version: str) -> SnapshotAnswer | None:
    answer = await deployment.read(SUBJECT)
    return answer if answer.body is not None and _version(answer.body) == version else None


async def _newer(deployment: Deployment, old: SnapshotAnswer) -> SnapshotAnswer | None:
    answer = await deployment.read(SUBJECT)
    return answer if answer.kept.version > old.kept.version else None
