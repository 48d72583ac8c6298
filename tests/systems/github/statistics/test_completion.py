"""Statistics that fail: tried again after 1, 2, 4 ... minutes, then a dead letter; the run is never lost."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import structlog
from sqlalchemy import insert

from tests.runtime.test_relay import running
from tests.systems.github.statistics.world import Repository, World
from tests.waiting import look_again, patience
from tidegate.core.errors import DatabaseUnavailable
from tidegate.engine import runs
from tidegate.engine.completion import Completion, failed_completions
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.metrics import STATS_RETRY_QUEUE_SIZE
from tidegate.engine.run_counters import run_ended
from tidegate.engine.runs import Run, RunActive
from tidegate.engine.source import Subject
from tidegate.engine.tables import collection_runs, page_jobs, state_values
from tidegate.runtime.relay import Relay
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.sql.schema import outbox_events

RUN = 1


class Finalizer:
    """The statistics, after so many failures."""

    def __init__(self, world: World, *errors: Exception) -> None:
        self._world, self._errors = world, list(errors)
        self.calls = 0
        self.news = asyncio.Event()

    async def __call__(self, run: Run) -> None:
        self.calls += 1
        self.news.set()
        if self._errors:
            raise self._errors.pop(0)
        await self._world.statistics.finalize(run)


def end_run(tx: Transaction) -> None:
    """As the last job of a run leaves it."""
    counters = dict.fromkeys(("total_jobs", "succeeded_jobs", "failed_jobs", "canceled_jobs"), 0)
    names = {"source": "github", "user_id": "ann", "login": "ann", "pool": "p", "triggered_by": "manual"}
    state = {"status": RunState.FINALIZING, "active_key": "github:ann", "options": {}, "created_at": tx.now}
    tx.execute(insert(collection_runs).values(id=RUN, **counters, **names, **state))
    outbox.add(tx, Event(run_ended("github"), key=f"run:{RUN}", payload={"run_id": RUN}))


@pytest.fixture
async def ended(small_world: World) -> World:
    await small_world.write_profile("ann")
    await small_world.write_repository(Repository(id=1, owner="ann", name="x"))
    await small_world.harness.database.transaction(end_run)
    return small_world


async def settled(world: World, attempts: int) -> None:
    """Wait until so many tries are written down, or the run is over."""
    async with patience():
        while (await state_of(world.harness.database))[0] < attempts:
            await look_again()


async def state_of(database: Database) -> tuple[float, Any]:
    """How often the event was tried, and the event."""

    def read(tx: Transaction) -> tuple[float, Any]:
        rows = tx.execute(outbox_events.select()).all()
        return (rows[0].attempts, rows[0]) if rows else (float("inf"), None)

    return await database.read(read)


def shown() -> float:
    (family,) = STATS_RETRY_QUEUE_SIZE.collect()
    return family.samples[0].value


async def shows(count: int) -> None:
    """Wait until the metric says so, which it does a moment after the commit."""
    async with patience():
        while shown() != count:
            await look_again()


async def begins_another(database: Database) -> bool:
    """Whether the user may have another run now; it is canceled at once."""
    beginning = runs.NewRun("github", Subject(user_id="ann", login="ann"), "p", "manual", [])
    try:
        run_id, _ = await database.transaction(runs.begin, beginning)
    except RunActive:
        return False
    await database.transaction(runs.cancel, run_id)
    return True


async def test_failed_statistics_are_retried_after_one_two_and_four_minutes_and_complete_the_run(ended: World):
    database, clock = ended.harness.database, ended.harness.clock
    finalizer = Finalizer(ended, *(RuntimeError("no") for _ in range(3)))
    relay = Relay(database, Completion(database, ["github"], [finalizer]).handlers)
    waits: list[float] = []
    async with running(relay):
        for attempt in (1, 2, 3):
            await settled(ended, attempt)
            _, event = await state_of(database)
            assert (await database.read(runs.get, RUN)).status is RunState.FINALIZING
            if attempt == 1:
                assert await begins_another(database), "the user need not wait for that"
            await shows(1)
            waits.append((event.not_before - clock.now()) / timedelta(minutes=1))
            clock.advance(event.not_before - clock.now())
            relay.notify()
        await settled(ended, 99)

    assert [low < wait <= high for wait, low, high in zip(waits, (0.89, 1.79, 3.59), (1, 2, 4), strict=True)] == [
        True
    ] * 3
    assert (await database.read(runs.get, RUN)).status is RunState.COMPLETED
    assert (await ended.of("ann")).repositories.total == 1
    assert shown() == 0


async def test_after_the_last_attempt_they_are_a_dead_letter_with_an_alert_and_a_replay_completes_the_run(ended: World):
    database, clock = ended.harness.database, ended.harness.clock
    finalizer = Finalizer(ended, *(RuntimeError("broken") for _ in range(8)))
    relay = Relay(database, Completion(database, ["github"], [finalizer]).handlers)
    with structlog.testing.capture_logs() as logs:
        async with running(relay):
            for attempt in range(1, 8):
                await settled(ended, attempt)
                clock.advance(timedelta(hours=1))
                relay.notify()
            await settled(ended, 8)
            (letter,) = await database.read(outbox.dead_letters)
            assert letter.last_error == "collect.completion: RuntimeError: broken"
            assert (await database.read(runs.get, RUN)).status is RunState.COMPLETED, "it is over without them"
            assert await database.read(failed_completions, [RUN]) == {RUN: "collect.completion: RuntimeError: broken"}

            await database.transaction(lambda tx: outbox.replay(tx, ids=[letter.id]))
            await settled(ended, 99)

    alerts = [each for each in logs if each["event"] == "collect.completion_failed"]
    assert [(each["log_level"], each["run_id"], each["error"]) for each in alerts] == [
        ("error", RUN, "RuntimeError: broken")
    ]
    assert (await database.read(runs.get, RUN)).status is RunState.COMPLETED
    assert (await ended.of("ann")).run_id == RUN
    assert finalizer.calls == 9


async def test_a_short_outage_is_retried_immediately(ended: World):
    database = ended.harness.database
    finalizer = Finalizer(ended, DatabaseUnavailable("away"), DatabaseUnavailable("away"))
    async with running(Relay(database, Completion(database, ["github"], [finalizer]).handlers)):
        await settled(ended, 99)

    assert finalizer.calls == 3
    assert (await database.read(runs.get, RUN)).status is RunState.COMPLETED


async def test_a_run_that_could_not_be_planned_fails_also_without_its_statistics(ended: World):
    database = ended.harness.database
    assert not await begins_another(database), "while nothing has failed, the run is under way"

    def fail_planning(tx: Transaction) -> None:
        job = {"run_id": RUN, "job_type": "PLAN", "resource_key": "user:ann", "page_key": "first", "spec": {}}
        numbers = {
            **state_values(JobState.FAILED),
            "fence": 1,
            "attempt_count": 1,
            "max_attempts": 1,
            "created_at": tx.now,
        }
        tx.execute(insert(page_jobs).values(**job, **numbers, last_error="no such user"))

    await database.transaction(fail_planning)
    finalizer = Finalizer(ended, RuntimeError("broken"))
    completion = Completion(database, ["github"], [finalizer], planning={"github": frozenset({"PLAN"})}, attempts=1)
    async with running(Relay(database, completion.handlers)), patience():
        while not await database.read(outbox.dead_letters):
            await look_again()

    run = await database.read(runs.get, RUN)
    assert (run.status, run.last_error) == (RunState.FAILED, "PLAN of user:ann: no such user")
    assert await begins_another(database)
