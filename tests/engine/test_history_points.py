"""Points of charts are stored once for each series and period, on every database."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest
from sqlalchemy import func, select

from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.engine.reports import history_points
from tidegate.engine.reports.history_points import PERIOD, StoredSeries
from tidegate.engine.tables import history_points as table
from tidegate.storage.sql import Database, Transaction
from tidegate.system import Sample

pytestmark = pytest.mark.every_server
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def database(migrated_url: str) -> AsyncGenerator[Database]:
    async with await Database.open(migrated_url, clock=ManualClock(NOON)) as opened:
        yield opened


async def record(database: Database, at: datetime, **values: float) -> None:
    samples = {name.replace("_", "/"): Sample(value, "jobs") for name, value in values.items()}
    await database.transaction(history_points.record, at, samples)


async def points(
    database: Database, *names: str, since: datetime = NOON, until: datetime = NOON + timedelta(days=1), most: int = 400
) -> dict[str, StoredSeries]:
    return await database.read(lambda tx: history_points.points(tx, names, since, until, most=most))


def seconds(after: timedelta) -> float:
    return (NOON + after).timestamp()


async def test_a_period_has_one_point_whoever_records_it_and_how_often(database: Database):
    await record(database, NOON + timedelta(seconds=3), jobs_done=4.5)
    await record(database, NOON + timedelta(seconds=200), jobs_done=9, jobs_failed=1)
    await record(database, NOON + PERIOD, jobs_done=7)
    await record(database, NOON + timedelta(seconds=1), jobs_done=11)

    found = await points(database, "jobs/")

    assert found == {
        "jobs/done": StoredSeries("jobs", [(seconds(timedelta()), 4.5), (seconds(PERIOD), 7.0)]),
        "jobs/failed": StoredSeries("jobs", [(seconds(timedelta()), 1.0)]),
    }


async def test_series_are_selected_by_name_by_prefix_and_by_time(database: Database):
    await record(database, NOON, jobs_done=1, jobs_failed=2, jobsx=3, quota_a_core=4)
    await record(database, NOON + PERIOD, jobs_done=5)

    assert sorted(await points(database, "jobs/")) == ["jobs/done", "jobs/failed"]
    assert sorted(await points(database, "jobsx", "quota/", "nothing", "no%/")) == ["jobsx", "quota/a/core"]
    assert await points(database, "jobs/done", since=NOON + PERIOD, until=NOON + PERIOD) == {}
    [late] = (await points(database, "jobs/done", since=NOON + PERIOD)).values()
    [early] = (await points(database, "jobs/done", until=NOON + PERIOD)).values()
    assert (late.points, early.points) == ([(seconds(PERIOD), 5.0)], [(seconds(timedelta()), 1.0)])
    everything = await database.read(history_points.names, NOON)
    assert sorted(everything) == ["jobs/done", "jobs/failed", "jobsx", "quota/a/core"]
    assert await database.read(history_points.names, NOON + PERIOD) == ["jobs/done"]


async def test_a_long_range_has_averages_of_some_periods(database: Database):
    for number in range(24):
        await record(database, NOON + number * PERIOD, jobs_done=number)

    [series] = (await points(database, "jobs/done", until=NOON + 24 * PERIOD, most=8)).values()

    assert series.points == [(seconds(3 * place * PERIOD), 3 * place + 1) for place in range(8)]
    with pytest.raises(InvalidArgument, match="most"):
        await points(database, "jobs/done", most=0)


async def test_values_and_names_that_cannot_be_stored_are_left_out(database: Database):
    await record(database, NOON, nan=nan, inf=inf, **{"x" * 201: 1}, good=1)
    await record(database, NOON)

    assert await database.read(history_points.names, NOON) == ["good"]


async def test_old_points_are_deleted(database: Database):
    await record(database, NOON - timedelta(days=31), old=1)
    await record(database, NOON - timedelta(days=29), recent=1)
    rule = history_points.history_rule(database, timedelta(days=30))

    assert (await rule.prune(100), await rule.prune(100)) == (1, 0)
    assert await database.read(_count) == 1


def _count(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(table)).scalar_one()
