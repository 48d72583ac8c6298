"""The leader records the history of the charts: one point for each series and period, whoever leads."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.processes.at_work import at_work
from tests.servers.migrated import migrated_folder
from tests.waiting import look_again, patience
from tidegate.app import open_application
from tidegate.app.application import Application
from tidegate.core.clock import ManualClock
from tidegate.core.errors import Unavailable
from tidegate.dashboard import recorder as recorder_module
from tidegate.dashboard.recorder import HistoryRecorder
from tidegate.engine.reports import history_points
from tidegate.engine.reports.history_points import PERIOD
from tidegate.engine.system import OpenCollection
from tidegate.engine.tables import collection_runs
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Recording:
    """An application with a clock of the test, and recorders as its processes have them."""

    def __init__(self, application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = application.find(OpenCollection)
        assert opened is not None
        self.application, self.collection = application, opened.collection
        self.database, self.clock = application.context.database, ManualClock(NOON)
        monkeypatch.setattr(self.database, "_clock", self.clock)
        self._ms = 0.0
        monkeypatch.setattr(recorder_module, "monotonic_ms", lambda: self._ms)

    def leader(self) -> HistoryRecorder:
        return HistoryRecorder(self.collection, list(self.application.systems.values()))

    def pass_time(self, span: timedelta) -> None:
        self.clock.advance(span)
        self._ms += span.total_seconds() * 1000

    async def points(self, name: str) -> list[tuple[timedelta, float]]:
        """The points of a series, each with the time after noon."""
        end = NOON + timedelta(days=1)
        found = await self.database.read(lambda tx: history_points.points(tx, [name], NOON, end))
        return [
            (timedelta(seconds=at - NOON.timestamp()), value) for each in found.values() for at, value in each.points
        ]


@asynccontextmanager
async def recording(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Recording]:
    settings = Settings(data_dir=await migrated_folder(folder))
    async with open_application(settings) as application:
        yield Recording(application, monkeypatch)


def add_run(tx: Transaction, number: int, values: Mapping[str, Any]) -> None:
    names = {"source": "github", "user_id": f"user-{number}", "login": f"user-{number}", "pool": "p"}
    counters = dict.fromkeys(("total_jobs", "succeeded_jobs", "failed_jobs", "canceled_jobs"), 0)
    state = {"status": "running", "triggered_by": "manual", "active_key": f"github:{number}", "options": {}}
    row = {"id": number, **names, **counters, **state, "created_at": tx.now, **values}
    tx.execute(insert(collection_runs), row)


def count_jobs(tx: Transaction, number: int, values: Mapping[str, Any]) -> None:
    tx.execute(update(collection_runs).where(collection_runs.c.id == number).values(values))


async def test_two_leaders_in_a_row_record_one_point_and_count_no_job_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with recording(tmp_path, monkeypatch) as here:
        transaction = here.database.transaction
        await transaction(add_run, 1, {"total_jobs": 1000, "succeeded_jobs": 100})
        first = here.leader()
        assert await first.fire() == 300_000
        here.pass_time(MINUTE)
        assert await first.fire() == 240_000, "nothing is due"

        await transaction(count_jobs, 1, {"succeeded_jobs": 400})
        here.pass_time(4 * MINUTE)
        await first.fire()
        here.pass_time(2 * MINUTE)
        second = here.leader()  # the first one died, or is frozen
        await transaction(count_jobs, 1, {"succeeded_jobs": 700})
        assert await second.fire() == 180_000
        here.pass_time(3 * MINUTE)
        await transaction(count_jobs, 1, {"succeeded_jobs": 880, "failed_jobs": 18})
        await second.fire()
        await first.fire()

        assert await here.points("jobs/done") == [(PERIOD, 1.0), (2 * PERIOD, 1.0)]
        assert await here.points("jobs/failed") == [(PERIOD, 0.0), (2 * PERIOD, 0.1)]
        assert await here.points("jobs/pending") == [(0 * PERIOD, 900.0), (PERIOD, 600.0), (2 * PERIOD, 102.0)]
        assert await here.points("runs/active") == [(0 * PERIOD, 1.0), (PERIOD, 1.0), (2 * PERIOD, 1.0)]


async def test_the_rate_counts_runs_that_began_or_ended_within_the_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with recording(tmp_path, monkeypatch) as here:
        transaction, leader = here.database.transaction, here.leader()
        await transaction(add_run, 1, {"succeeded_jobs": 50})
        ended_before = {"status": "failed", "active_key": None, "completed_at": NOON - 8 * PERIOD}
        await transaction(add_run, 2, {"succeeded_jobs": 70, "created_at": NOON - 9 * PERIOD, **ended_before})
        await leader.fire()
        here.pass_time(PERIOD)
        over = {"status": "completed", "active_key": None, "completed_at": here.clock.now() - MINUTE}
        await transaction(count_jobs, 1, {"succeeded_jobs": 80, **over})
        await transaction(add_run, 3, {"succeeded_jobs": 90, **over})
        retried = {"status": "running", "active_key": "github:2", "completed_at": None}
        await transaction(count_jobs, 2, {"succeeded_jobs": 75, **retried})
        await leader.fire()

        assert await here.points("jobs/done") == [(PERIOD, 0.4)], "30 + 90 jobs; what the old run had is unknown"


async def test_a_leader_that_was_away_for_long_computes_no_rate_over_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with recording(tmp_path, monkeypatch) as here:
        leader = here.leader()
        await here.database.transaction(add_run, 1, {"succeeded_jobs": 0})
        await leader.fire()
        here.pass_time(12 * PERIOD)
        await here.database.transaction(count_jobs, 1, {"succeeded_jobs": 9000})
        await leader.fire()
        here.pass_time(PERIOD)
        await here.database.transaction(count_jobs, 1, {"succeeded_jobs": 9300})
        await leader.fire()

        assert await here.points("jobs/done") == [(13 * PERIOD, 1.0)]


async def test_a_point_that_could_not_be_stored_is_recorded_as_soon_as_the_database_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with recording(tmp_path, monkeypatch) as here:
        leader, is_away = here.leader(), True
        transaction = here.database.transaction

        async def broken(*args: Any) -> Any:
            if is_away:
                raise Unavailable("it is away")
            return await transaction(*args)

        monkeypatch.setattr(here.database, "transaction", broken)
        with pytest.raises(Unavailable):
            await leader.fire()
        is_away = False
        await leader.fire()

        assert await here.points("runs/active") == [(0 * PERIOD, 0.0)]


async def test_the_leader_of_an_application_records(tmp_path: Path):
    settings = Settings(data_dir=await migrated_folder(tmp_path))
    async with open_application(settings) as application, at_work(application.process()):
        since = datetime.now(UTC) - timedelta(hours=1)
        async with patience():
            while not (names := await application.context.database.read(history_points.names, since)):
                await look_again()

    assert {"runs/active", "jobs/pending", "outbox/pending", "jobs/waiting", "timers/alarms"} <= set(names)
    assert "jobs/done" not in names, "a rate needs two reads"
