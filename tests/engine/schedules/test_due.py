"""What happens when schedules are due: one run each, none lost, none twice, and none in the way of another."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import update

from tests.engine.schedules.harness import DAY, FORGIVING, HOUR, POOL, ScheduleHarness, harness_at
from tests.processes import start_warm
from tidegate.core.clock import ManualClock
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.telemetry.metrics import REGISTRY
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.job_store import StoredJob
from tidegate.engine.lifecycle import RunState
from tidegate.engine.schedules.due import fire_some
from tidegate.engine.schedules.firings import collection_schedules
from tidegate.engine.settings import CollectSettings
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey


def told(outcome: str) -> float:
    return REGISTRY.get_sample_value("schedules_fired_total", {"outcome": outcome}) or 0


async def test_no_run_starts_before_the_due_time(local: ScheduleHarness, clock: ManualClock):
    assert await local.due.fire() is None
    await local.add("ada")

    assert await local.due.fire() == 3 * 3600 * 1000
    clock.advance(3 * HOUR - timedelta(microseconds=500))
    assert await local.due.fire() == 1, "rounded up: whoever sleeps so long is not early"
    assert await local.runs() == []


async def test_a_due_schedule_starts_one_run_and_plans_the_next(harness: ScheduleHarness, clock: ManualClock):
    [schedule] = await harness.add("ada", full=True)
    clock.advance(3 * HOUR)

    assert await harness.due.fire() == DAY.total_seconds() * 1000

    [run] = await harness.runs()
    assert (run.login, run.pool, run.triggered_by, run.options) == ("ada", POOL, "scheduled", {"full": True})
    assert run.status == RunState.PLANNING
    assert await harness.offered() == 1
    fired = await harness.schedules.show(schedule.id)
    assert (fired.last_run_id, fired.last_due_at, fired.last_error) == (run.id, clock.now(), None)
    assert fired.next_at == clock.now() + DAY


async def test_a_schedule_starts_a_run_on_each_day(local: ScheduleHarness, clock: ManualClock):
    await local.add("ada")
    for day in range(1, 4):
        clock.advance(DAY)
        await local.fire_all()
        await local.end_runs()
        assert len(await local.runs()) == day


@pytest.mark.every_server
async def test_several_missed_due_times_start_one_run(harness: ScheduleHarness, clock: ManualClock):
    [hourly] = await harness.add("ada", cron="0 * * * *")
    clock.advance(timedelta(days=40, minutes=20))

    assert await harness.due.fire() == 40 * 60 * 1000, "all of them are over at once"
    await harness.end_runs()
    assert await harness.due.fire() == 40 * 60 * 1000

    assert len(await harness.runs()) == 1
    assert (await harness.schedules.show(hourly.id)).next_at == clock.now() + timedelta(minutes=40)


async def test_a_due_time_is_skipped_once_while_the_user_has_an_active_run(
    harness: ScheduleHarness, clock: ManualClock
):
    [schedule] = await harness.add("ada")
    before = told("skipped")
    clock.advance(DAY)
    await harness.fire_all()
    clock.advance(DAY)

    await harness.fire_all()  # the first run is not over

    [run] = await harness.runs()
    skipped = await harness.schedules.show(schedule.id)
    assert told("skipped") == before + 1
    assert "active run" in (skipped.last_error or "")
    assert (skipped.last_run_id, skipped.last_due_at) == (run.id, clock.now() - 21 * HOUR)
    await harness.end_runs()
    clock.advance(DAY)
    await harness.fire_all()
    assert len(await harness.runs()) == 2
    assert (await harness.schedules.show(schedule.id)).last_error is None


async def test_two_schedules_of_one_user_due_at_the_same_time_start_one_run(local: ScheduleHarness, clock: ManualClock):
    await local.add("ada", cron="0 3 * * *")
    await local.add("ada", cron="0 3 1 * *", full=True)
    clock.advance(DAY)

    await local.fire_all()

    [run] = await local.runs()
    assert run.options == {}
    assert await local.offered() == 1


@pytest.mark.every_server
async def test_a_schedule_that_cannot_start_does_not_delay_the_others(harness: ScheduleHarness, clock: ManualClock):
    """A defect of the source, rows that cannot be written, a user without a credential.

    A schedule of a source that this process does not know is left to processes that know it.
    """
    added = await harness.add("ada", "broken", "endless", "stranger", "unserved", "unwritable", "zoe")
    await harness.database.transaction(_change, "stranger", {"source": "elsewhere"})
    clock.advance(DAY)

    await harness.fire_all()

    begun = {run.login for run in await harness.runs()}
    assert {"ada", "zoe"} <= begun
    errors = {each.login: each.last_error for each in await harness.schedules.list_schedules()}
    assert "LookupError: the source has a defect" in (errors["broken"] or "")
    assert errors["stranger"] is None
    if harness.database.dialect != "sqlite":  # which takes a text of any length
        assert "endless" not in begun
        assert errors["endless"]
    waiting = {each.login: each.next_at for each in await harness.schedules.list_schedules()}
    unknown_caller = waiting.pop("stranger")
    assert unknown_caller is not None
    assert unknown_caller <= clock.now()
    assert set(waiting.values()) == {clock.now() + 3 * HOUR}
    assert "no valid credential" in (errors["unserved"] or "")
    assert "unwritable" not in begun, "of a run whose jobs cannot be written, nothing stays"
    assert errors["unwritable"]
    assert len(added) == 7


async def test_a_schedule_whose_time_zone_no_longer_exists_is_paused_with_the_reason(
    local: ScheduleHarness, clock: ManualClock
):
    await local.add("ada", "zoe")
    await local.database.transaction(_change, "ada", {"timezone": "Mars/Base"})
    clock.advance(DAY)

    await local.fire_all()

    assert {run.login for run in await local.runs()} == {"ada", "zoe"}
    [ada] = await local.schedules.list_schedules("ada")
    assert ada.next_at is None
    assert "Mars/Base" in (ada.last_error or "")


@pytest.mark.full
async def test_many_due_schedules_are_started_in_small_transactions(local: ScheduleHarness, clock: ManualClock):
    await local.add(*(f"user{number:03}" for number in range(120)))
    clock.advance(DAY)
    sizes: list[int] = []
    while await local.due.fire() == 0:
        sizes.append(len(await local.runs()))
    sizes.append(len(await local.runs()))

    assert sizes == [50, 100, 120]
    assert await local.offered() == 120


@pytest.mark.every_server
@pytest.mark.race
async def test_of_several_assumed_leaders_one_takes_each_due_time(
    harness: ScheduleHarness, clock: ManualClock, migrated_url: str, embedded: Valkey
):
    await harness.add(*(f"user{number:03}" for number in range(120)))
    clock.advance(DAY)
    async with (
        harness_at(migrated_url, embedded, clock) as other,
        harness_at(migrated_url, embedded, clock) as third,
    ):
        await asyncio.gather(*(each.fire_all() for each in (harness, other, third)))

    assert Counter(run.login for run in await harness.runs()) == {f"user{number:03}": 1 for number in range(120)}
    assert {each.last_error for each in await harness.schedules.list_schedules()} == {None}


async def test_jobs_that_could_not_be_enqueued_are_left_to_recovery(local: ScheduleHarness, clock: ManualClock):
    async def unreachable(_jobs: Sequence[StoredJob]) -> None:
        raise ValkeyUnavailable("away")

    due = local.due_with(unreachable)
    await local.add("ada")
    clock.advance(DAY)

    with pytest.raises(ValkeyUnavailable):
        await due.fire()

    assert local.doubts == 1
    assert await local.due.fire() == 3 * 3600 * 1000, "the time was taken, and is not taken again"
    assert (len(await local.runs()), await local.offered()) == (1, 0)
    await Recovery(local.database, local.parts.gate).offer_everything()
    assert await local.offered() == 1


async def test_a_rolled_back_transaction_starts_no_run(harness: ScheduleHarness, clock: ManualClock):
    [schedule] = await harness.add("ada")
    clock.advance(DAY)

    def fails(tx: Transaction) -> None:
        assert len(fire_some(tx, FORGIVING, {("clockwork", "ada"): POOL}, [schedule.id], CollectSettings())) == 1
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await harness.database.transaction(fails)

    assert await harness.runs() == []
    assert await harness.schedules.show(schedule.id) == schedule


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.crash
@pytest.mark.parametrize("moment", ["before commit", "before offer"])
async def test_a_leader_killed_while_starting_runs_loses_and_repeats_none(
    harness: ScheduleHarness, clock: ManualClock, migrated_url: str, moment: str
):
    await harness.add("ada", "bob")
    clock.advance(DAY)
    killed = await start_warm(
        *(sys.executable, "-m", "tests.engine.schedules.interrupted", migrated_url, harness.parts.valkey.url, moment),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert killed.stdout
    assert await killed.stdout.readline() == f"{moment}\n".encode()
    killed.kill()
    await killed.communicate()

    await harness.fire_all()
    await Recovery(harness.database, harness.parts.gate).offer_everything()  # which every new leader does

    assert Counter(run.login for run in await harness.runs()) == {"ada": 1, "bob": 1}
    assert await harness.offered() == 2


def _change(tx: Transaction, login: str, values: dict[str, str]) -> None:
    tx.execute(update(collection_schedules).where(collection_schedules.c.login == login).values(values))
