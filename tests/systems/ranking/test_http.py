"""Rankings over HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import aiohttp
import pytest

from tests.http.serving import Client
from tests.systems.ranking.harness import RankingHarness, count
from tidegate.http import Binding
from tidegate.http.application import build_application
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.systems.ranking.api import RankingRoutes

HTTP = HttpSettings(port=0)


@pytest.fixture
async def client(harness: RankingHarness) -> AsyncGenerator[Client]:
    stopping = asyncio.Event()
    with Binding(HTTP) as binding:
        application = build_application(RankingRoutes(harness.ranking).routes(), HTTP)
        service = HttpService(application, binding, on_stop=lambda: None)
        async with aiohttp.ClientSession() as session:
            serving = asyncio.create_task(service.run(stopping))
            yield Client(session, binding.url)
            stopping.set()
            await serving


async def test_a_ranking_is_returned_with_its_window(client: Client, harness: RankingHarness):
    await harness.deliver(count("b", "1"), count("a/ä", "2", amount=2), count("a/ä", "3", ago=timedelta(days=1)))

    day = await client.get("/v1/rankings/concerts")
    week = await client.get("/v1/rankings/concerts?period=weekly&limit=1")
    before = await client.get("/v1/rankings/concerts?date=2025-12-29")

    assert (day.status, day.json) == (
        200,
        {
            "board": "concerts",
            "period": "daily",
            "window": "2025-12-30",
            "starts_at": "2025-12-29T15:00:00Z",
            "ends_at": "2025-12-30T15:00:00Z",
            "kept_until": "2026-01-01T15:00:00Z",
            "total": 2,
            "degraded": False,
            "members": [{"rank": 1, "member": "a/ä", "score": 2}, {"rank": 2, "member": "b", "score": 1}],
        },
    )
    assert (week.json["window"], week.json["members"]) == ("2026-W01", [{"rank": 1, "member": "a/ä", "score": 3}])
    assert [each["member"] for each in before.json["members"]] == ["a/ä"]


async def test_a_member_gets_its_place_and_its_neighbours(client: Client, harness: RankingHarness):
    await harness.deliver(*(count(f"m/{n}", str(n), amount=9 - n) for n in range(5)))

    place = await client.get("/v1/rankings/concerts/members/m%2F2?neighbours=1")
    nobody = await client.get("/v1/rankings/concerts/members/nobody?period=monthly")

    assert (place.json["rank"], place.json["score"], place.json["total"]) == (3, 7, 5)
    assert [each["member"] for each in place.json["around"]] == ["m/1", "m/2", "m/3"]
    assert (nobody.status, nobody.json["rank"], nobody.json["around"]) == (200, None, [])


async def test_invalid_queries_are_refused_and_unknown_members_are_no_error(client: Client, harness: RankingHarness):
    assert (await client.get("/v1/rankings/other")).problem == "not-found"
    assert (await client.get("/v1/rankings/concerts?period=yearly")).problem == "invalid"
    assert (await client.get("/v1/rankings/concerts?limit=0")).problem == "invalid"
    for day in ("0001-01-01", "9999-12-31"):
        assert (await client.get(f"/v1/rankings/concerts?period=monthly&date={day}")).problem == "not-found"

    await harness.valkey.execute("FLUSHALL")

    degraded = await client.get("/v1/rankings/concerts")
    assert (degraded.status, degraded.json["degraded"], degraded.json["members"]) == (200, True, [])
