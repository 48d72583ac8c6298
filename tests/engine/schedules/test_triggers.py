"""Schedules that somebody fires: one run for each key, whoever asks, and however often."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from tests.engine.schedules.harness import DAY, HOUR, POOL, SOURCES, ScheduleHarness, pool_for
from tests.processes import WarmProcess, start_warm
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument, NoCredential, NotFound, ValkeyUnavailable
from tidegate.engine import retention
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.job_store import StoredJob
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.schedules import firings
from tidegate.engine.schedules.due import Triggers
from tidegate.engine.schedules.firings import FiringOutcome, ScheduleInactive, due_key, schedule_firings
from tidegate.storage.sql import Transaction


def _firings(tx: Transaction) -> list[Any]:
    return list(tx.execute(select(schedule_firings).order_by(schedule_firings.c.firing_key)))


@pytest.mark.every_server
async def test_a_key_starts_one_run_and_repeats_its_answer(harness: ScheduleHarness):
    [schedule] = await harness.add("ada", full=True)

    first = await harness.schedules.trigger(schedule.id, "order-1")
    again = await harness.schedules.trigger(schedule.id, "order-1")

    [run] = await harness.runs()
    assert (first.outcome, first.run_id, first.reason) == (FiringOutcome.BEGUN, run.id, None)
    assert again == first
    assert (run.login, run.pool, run.options) == ("ada", POOL, {"full": True})
    assert await harness.offered() == 1
    now = await harness.schedules.show(schedule.id)
    assert (now.last_run_id, now.next_at) == (run.id, schedule.next_at), "the clock goes on as planned"
    assert await harness.database.read(firings.of_schedule, schedule.id) == [first]


async def test_a_skipped_key_can_be_used_again_after_the_blocking_run_has_ended(harness: ScheduleHarness):
    [schedule] = await harness.add("ada")
    await harness.schedules.trigger(schedule.id, "order-1")

    skipped = [await harness.schedules.trigger(schedule.id, "order-2") for _ in range(2)]
    await harness.end_runs()
    begun = [await harness.schedules.trigger(schedule.id, "order-2") for _ in range(2)]

    assert [(each.outcome, each.run_id) for each in skipped] == [(FiringOutcome.SKIPPED, None)] * 2
    assert "active run" in (skipped[0].reason or "")
    assert (begun[0].outcome, begun[0].reason) == (FiringOutcome.BEGUN, None)
    assert begun[1] == begun[0], "it began one run, and no other"
    assert [run.id for run in await harness.runs()][-1] == begun[0].run_id
    assert len(await harness.runs()) == 2
    assert len(await harness.database.read(_firings)) == 2


async def test_a_due_time_skipped_through_another_trigger_starts_its_run_when_due(
    harness: ScheduleHarness, clock: ManualClock
):
    [schedule] = await harness.add("ada")
    assert schedule.next_at
    await harness.schedules.trigger(schedule.id, "order-1")
    early = await harness.schedules.trigger(schedule.id, due_key(schedule.next_at))
    await harness.end_runs()
    clock.advance(3 * HOUR)

    await harness.fire_all()

    assert early.outcome is FiringOutcome.SKIPPED
    assert len(await harness.runs()) == 2


async def test_triggering_a_paused_schedule_is_refused_and_the_key_stays_usable(local: ScheduleHarness):
    [schedule] = await local.add("ada")
    await local.schedules.pause(schedule.id)

    with pytest.raises(ScheduleInactive, match="is paused; resume it"):
        await local.schedules.trigger(schedule.id, "order-1")

    assert (await local.runs(), await local.database.read(_firings)) == ([], [])
    await local.schedules.resume(schedule.id)
    begun = await local.schedules.trigger(schedule.id, "order-1")
    assert begun.outcome is FiringOutcome.BEGUN
    await local.schedules.pause(schedule.id)
    assert await local.schedules.trigger(schedule.id, "order-1") == begun, "what was fired may be asked for at any time"


async def test_a_trigger_that_cannot_start_raises_and_the_key_stays_usable(local: ScheduleHarness):
    broken, unserved = await local.add("broken", "unserved")
    with pytest.raises(NoCredential):
        await local.schedules.trigger(unserved.id, "order-1")
    with pytest.raises(LookupError, match="the source has a defect"):
        await local.schedules.trigger(broken.id, "order-1")
    with pytest.raises(NotFound):
        await local.schedules.trigger(99, "order-1")
    for nonsense in ("", "a|b", "x" * 201):
        with pytest.raises(InvalidArgument):
            await local.schedules.trigger(unserved.id, nonsense)

    assert (await local.runs(), await local.database.read(_firings)) == ([], [])


async def test_the_timekeeper_records_the_due_time_with_the_run(harness: ScheduleHarness, clock: ManualClock):
    [schedule] = await harness.add("ada")
    clock.advance(DAY)

    await harness.fire_all()

    [run] = await harness.runs()
    [fired] = await harness.database.read(_firings)
    assert schedule.next_at
    assert (fired.schedule_id, fired.firing_key, fired.run_id) == (schedule.id, due_key(schedule.next_at), run.id)
    assert fired.firing_key.endswith("T03:00:00Z")
    told = await harness.schedules.trigger(schedule.id, fired.firing_key)
    assert (told.run_id, len(await harness.runs())) == (run.id, 1)


async def test_a_due_time_triggered_elsewhere_starts_no_second_run(harness: ScheduleHarness, clock: ManualClock):
    [schedule] = await harness.add("ada")
    assert schedule.next_at
    early = await harness.schedules.trigger(schedule.id, due_key(schedule.next_at))
    await harness.end_runs()
    clock.advance(3 * HOUR)

    await harness.fire_all()

    assert [run.id for run in await harness.runs()] == [early.run_id]
    later = await harness.schedules.show(schedule.id)
    assert later.next_at == schedule.next_at + DAY
    assert f"already fired: run {early.run_id}" in (later.last_error or "")
    clock.advance(DAY)
    await harness.fire_all()
    assert len(await harness.runs()) == 2


@pytest.mark.every_server
async def test_triggers_are_deleted_after_a_month_or_with_their_schedule(harness: ScheduleHarness, clock: ManualClock):
    ada, bob = await harness.add("ada", "bob")
    await harness.schedules.trigger(ada.id, "old")
    clock.advance(timedelta(days=29))
    await harness.schedules.trigger(ada.id, "young")
    await harness.schedules.trigger(bob.id, "gone")
    clock.advance(timedelta(days=2))

    day = timedelta(days=1)
    for rule in retention.rules(harness.database, runs=100 * day, cursors=100 * day, firings=30 * day):
        await rule.prune(500)
    await harness.schedules.remove(bob.id)

    assert [row.firing_key for row in await harness.database.read(_firings)] == ["young"]


async def test_jobs_that_could_not_be_enqueued_keep_their_enqueue_intent(local: ScheduleHarness):
    """Whoever dies between the commit and the offer leaves the same behind: the leader looks, and offers."""
    schedule, other = await local.add("ada", "bob")
    await local.schedules.trigger(other.id, "order-1")
    assert (await local.parts.gate.intents.expired())[1] is None, "it was kept"

    class Broken(Orchestrator):
        async def offer(self, jobs: Sequence[StoredJob]) -> None:
            assert jobs
            raise ValkeyUnavailable("it went away")

    broken = Broken(local.database, local.parts.gate, SOURCES)
    triggers = Triggers(local.database, SOURCES, pool_for=pool_for, orchestrator=broken)

    with pytest.raises(ValkeyUnavailable):
        await triggers.fire(schedule.id, "order-1")

    assert (len(await local.runs()), await local.offered()) == (2, 1)
    assert (await local.parts.gate.intents.expired())[1] is not None, "somebody will look"
    await Recovery(local.database, local.parts.gate).offer_everything()
    assert await local.offered() == 2
    assert (await local.schedules.trigger(schedule.id, "order-1")).outcome is FiringOutcome.BEGUN


@pytest.mark.every_server
@pytest.mark.race
async def test_the_same_key_from_many_processes_starts_one_run(harness: ScheduleHarness, migrated_url: str):
    [schedule] = await harness.add("ada")
    where = (migrated_url, harness.parts.valkey.url, str(schedule.id), "order-1")

    async def ready() -> WarmProcess:
        process = await start_warm(
            *(sys.executable, "-m", "tests.engine.schedules.triggering_process", *where),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout
        assert await process.stdout.readline() == b"ready\n"
        return process

    processes = await asyncio.gather(*(ready() for _ in range(8)))
    for process in processes:
        assert process.stdin
        process.stdin.write(b"go\n")
    said = {(await process.communicate())[0] for process in processes}

    [run] = await harness.runs()
    assert said == {b"%d\n" % run.id}
    assert await harness.offered() == 1
