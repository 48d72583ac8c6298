"""The door to schedules: adding, changing, pausing and forgetting them, and who is told."""

from datetime import UTC, datetime

import pytest

from tests.engine.schedules.harness import DAY, HOUR, SOURCES, ScheduleHarness
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.engine.schedules.store import Schedules
from tidegate.engine.source import Subject
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.valkey import Valkey

THREE = datetime(2026, 1, 1, 3, tzinfo=UTC)


@pytest.mark.every_server
async def test_an_added_schedule_is_listed_with_its_next_due_time(harness: ScheduleHarness):
    added = await harness.add("grace", "ada", full=True)

    assert [each.login for each in added] == ["ada", "grace"]
    assert await harness.schedules.list_schedules() == sorted(added, key=lambda each: each.id)
    assert {(each.next_at, each.cron, each.timezone) for each in added} == {(THREE, "0 3 * * *", "UTC")}
    assert added[0].subject == Subject(user_id="ada", login="ada", options={"full": True})
    assert [each.login for each in await harness.schedules.list_schedules("grace")] == ["grace"]


@pytest.mark.every_server
async def test_adding_it_again_changes_only_its_options(harness: ScheduleHarness, clock: ManualClock):
    [first] = await harness.add("ada")
    [paused] = await harness.add("bob")
    await harness.schedules.pause(paused.id)
    clock.advance(DAY)

    again = await harness.add("ada", "bob", full=True)

    assert [(each.id, each.next_at, each.created_at) for each in again] == [
        (first.id, THREE, first.created_at),
        (paused.id, None, first.created_at),
    ]
    assert {each.options["full"] for each in again} == {True}
    assert len(await harness.schedules.list_schedules()) == 2


async def test_schedules_are_paginated(local: ScheduleHarness):
    added = await local.add(*(f"user{number}" for number in range(7)))
    first = await local.schedules.list_schedules(limit=3)
    rest = await local.schedules.list_schedules(after=first[-1].id, limit=100)

    assert first + rest == added
    with pytest.raises(InvalidArgument, match="limit"):
        await local.schedules.list_schedules(limit=0)


async def test_a_user_may_have_several_schedules(local: ScheduleHarness):
    await local.add("ada", cron="0 3 * * *")
    await local.add("ada", cron="0 3 1 * *", full=True)
    await local.add("ada", cron="0 3 * * *", timezone="Europe/Berlin")

    assert len(await local.schedules.list_schedules("ada")) == 3


@pytest.mark.full
async def test_more_schedules_than_one_transaction_takes_are_added(harness: ScheduleHarness):
    logins = [f"user{number:04}" for number in range(450)]

    added = await harness.add(*logins)

    assert [each.login for each in added] == logins
    assert len({each.id for each in added}) == 450


async def test_a_paused_schedule_is_not_due_and_resumes_with_the_next_due_time(
    harness: ScheduleHarness, clock: ManualClock
):
    [schedule] = await harness.add("ada")
    assert (await harness.schedules.pause(schedule.id)).next_at is None
    clock.advance(3 * DAY)
    assert await harness.due.fire() is None

    resumed = await harness.schedules.resume(schedule.id)

    assert resumed.next_at == THREE + 3 * DAY
    assert await harness.due.fire() == 3 * HOUR.total_seconds() * 1000
    assert await harness.runs() == []


async def test_resuming_a_schedule_that_is_not_paused_has_no_effect(local: ScheduleHarness, clock: ManualClock):
    """Else what it missed would be forgotten."""
    [schedule] = await local.add("ada")
    clock.advance(2 * DAY)

    assert (await local.schedules.resume(schedule.id)).next_at == THREE


async def test_a_removed_schedule_is_deleted(harness: ScheduleHarness, clock: ManualClock):
    [schedule] = await harness.add("ada")

    assert await harness.schedules.remove(schedule.id) == schedule

    clock.advance(DAY)
    assert await harness.due.fire() is None
    assert await harness.runs() == []
    for change in (harness.schedules.show, harness.schedules.remove, harness.schedules.pause, harness.schedules.resume):
        with pytest.raises(NotFound, match=str(schedule.id)):
            await change(schedule.id)


async def test_a_new_schedule_wakes_the_service_that_waits_for_due_times(local: ScheduleHarness):
    bell = local.parts.timers.wakeup
    await local.add("ada")
    assert await bell.wait(0.01)

    [schedule] = await local.schedules.list_schedules()
    await local.schedules.pause(schedule.id)
    assert not await bell.wait(0.01), "nothing comes earlier by a pause"
    await local.schedules.resume(schedule.id)
    assert await bell.wait(0.01)


async def test_a_schedule_is_stored_although_the_leader_cannot_be_woken(local: ScheduleHarness):
    away = Valkey("redis://127.0.0.1:1")
    schedules = Schedules(local.database, SOURCES, Wakeup(away, away.unit("nowhere").key("wake")))

    [added] = await schedules.add("clockwork", [Subject(user_id="ada", login="ada")], cron="0 3 * * *")

    await away.close()
    assert await local.schedules.show(added.id) == added


@pytest.mark.parametrize(
    ("source", "login", "cron", "timezone", "named"),
    [
        ("unknown", "ada", "0 3 * * *", "UTC", "source"),
        ("clockwork", "", "0 3 * * *", "UTC", "user_id"),
        ("clockwork", "a" * 201, "0 3 * * *", "UTC", "user_id"),
        ("clockwork", "ada", "0 3 * *", "UTC", "cron"),
        ("clockwork", "ada", "0 0 * 2 MON#6", "UTC", "cron"),
        ("clockwork", "ada", "0 3 * * *", "Mars/Base", "timezone"),
    ],
)
async def test_a_schedule_that_could_never_run_is_refused(
    local: ScheduleHarness, source: str, login: str, cron: str, timezone: str, named: str
):
    with pytest.raises(InvalidArgument) as refused:
        await local.schedules.add(source, [Subject(user_id=login, login=login)], cron=cron, timezone=timezone)

    assert refused.value.name == named
    assert await local.schedules.list_schedules() == []
