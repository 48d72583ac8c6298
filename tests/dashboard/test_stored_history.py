"""`/v1/history` has stored points before those in memory, and longer ranges."""

from datetime import datetime, timedelta

import pytest

from tests.http.serving import Served
from tidegate.core.errors import DatabaseUnavailable
from tidegate.engine.reports import history_points
from tidegate.engine.reports.history_points import PERIOD
from tidegate.storage.sql import Database
from tidegate.system import Sample

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def store(deployment: Served, name: str, *ages: timedelta) -> datetime:
    """Points of a series, each with its age in seconds as value. Returns the time of the newest possible one."""
    database = deployment.collection.parts.database
    now = database.clock.now()
    for age in ages:
        samples = {name: Sample(age.total_seconds(), "jobs")}
        await database.transaction(history_points.record, now - age, samples)
    return now


async def values(deployment: Served, query: str) -> list[float]:
    answer = await deployment.client.get(f"/v1/history?{query}")
    assert answer.status == 200, answer
    return [value for series in answer.json["series"] for _, value in series["points"]]


def ago(now: datetime, age: timedelta) -> str:
    return (now - age).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_the_last_hour_is_shown_by_default_and_longer_ranges_on_request(deployment: Served):
    ages = [timedelta(minutes=20), timedelta(hours=2), timedelta(days=3)]
    now = await store(deployment, "stored/only", *ages)
    recent, older, oldest = (age.total_seconds() for age in ages)

    assert await values(deployment, "series=stored/only") == [recent]
    assert await values(deployment, f"series=stored/&since={ago(now, timedelta(hours=3))}") == [older, recent]
    whole = f"series=stored/&since={ago(now, timedelta(days=4))}"
    assert await values(deployment, f"{whole}&until={ago(now, timedelta(hours=1))}") == [oldest, older]
    assert "stored/only" in (await deployment.client.get("/v1/history")).json["names"]


async def test_points_in_memory_follow_the_stored_ones(deployment: Served):
    now = await store(deployment, "runs/active", timedelta(minutes=30), timedelta(hours=5))

    for query in ("series=runs/active", f"series=runs/active&since={ago(now, timedelta(hours=1))}"):
        [series] = (await deployment.client.get(f"/v1/history?{query}")).json["series"]
        times = [at for at, _ in series["points"]]
        assert series["points"][0][1] == timedelta(minutes=30).total_seconds(), query
        assert times == sorted(set(times))
        assert times[-1] > now.timestamp() - PERIOD.total_seconds(), "this process recorded it"


async def test_an_empty_range_is_refused(deployment: Served):
    now = deployment.collection.parts.database.clock.now()
    for query in (
        f"since={ago(now, timedelta(hours=1))}&until={ago(now, timedelta(hours=1))}",
        f"since={ago(now, timedelta(hours=-1))}",
        f"until={ago(now, timedelta(days=1))}",
    ):
        answer = await deployment.client.get(f"/v1/history?series=stored/&{query}")
        assert (answer.status, answer.json["field"]) == (422, "since"), query


async def test_points_in_memory_are_shown_while_the_database_is_away(
    deployment: Served, monkeypatch: pytest.MonkeyPatch
):
    await deployment.client.get("/v1/history?series=runs/active")  # there is a sample

    async def away(*_: object) -> None:
        raise DatabaseUnavailable("it is away")

    monkeypatch.setattr(Database, "read", away)
    assert await values(deployment, "series=jobs/waiting")
