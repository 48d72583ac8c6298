"""`/v1/schedules`, before a whole process."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.http.serving import Reply, Served, served

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    async with served(tmp_path_factory.mktemp("http"), users=2, works=False) as started:
        yield started


async def add(server: Served, login: str, **body: Any) -> Reply:
    return await server.client.post("/v1/schedules", {"login": login, "cron": "0 3 * * *", **body})


async def test_a_schedule_is_added_shown_paused_resumed_and_removed(server: Served):
    added = await add(server, "Ada", timezone="Europe/Berlin", full=True)
    place = added.headers["location"]
    shown = await server.client.get(place)
    paused = await server.client.post(f"{place}/pause")
    resumed = await server.client.post(f"{place}/resume")
    removed = await server.client.ask("DELETE", place)

    assert [each.status for each in (added, shown, paused, resumed, removed)] == [201, 200, 200, 200, 200]
    assert (added.json["login"], added.json["options"], added.json["timezone"]) == (
        "ada",
        {"full": True},
        "Europe/Berlin",
    )
    assert shown.json == added.json == resumed.json == removed.json
    assert paused.json["next_at"] is None
    assert (await server.client.get(place)).problem == "not-found"


async def test_schedules_are_paginated_and_filtered_by_user(server: Served):
    ids = [(await add(server, login)).json["id"] for login in ("bob", "cleo", "dan")]

    first = (await server.client.get(f"/v1/schedules?limit=2&after={ids[0] - 1}")).json["schedules"]
    rest = (await server.client.get(f"/v1/schedules?after={first[-1]['id']}")).json["schedules"]
    of_cleo = (await server.client.get("/v1/schedules?login=CLEO")).json["schedules"]

    assert [each["id"] for each in first + rest] == ids
    assert [each["id"] for each in of_cleo] == [ids[1]]


async def test_adding_the_same_schedule_again_returns_the_existing_one(server: Served):
    first, again = await add(server, "eve"), await add(server, "https://github.com/EVE", full=True)

    assert (again.status, again.json["id"], again.json["options"]) == (201, first.json["id"], {"full": True})


@pytest.mark.parametrize(
    "body",
    [
        {"cron": "61 3 * * *"},
        {"cron": "every day"},
        {"timezone": "Mars/Base"},
        {"since": "yesterday"},
        {"include": ["EVERYTHING"]},
        {"login": "not a login"},
        {"color": "red"},
    ],
)
async def test_a_schedule_that_could_never_run_is_refused_with_the_reason(server: Served, body: dict[str, Any]):
    refused = await add(server, **{"login": "fay", **body})

    assert (refused.status, refused.problem) == (422, "invalid")
    assert (await server.client.get("/v1/schedules?login=fay")).json["schedules"] == []


async def test_a_schedule_is_triggered_once_for_each_key(server: Served):
    place = (await add(server, server.logins[0])).headers["location"]

    first = await server.client.post(f"{place}/trigger", {"key": "order-1"})
    again = await server.client.post(f"{place}/trigger", {"key": "order-1"})
    unnamed = await server.client.post(f"{place}/trigger")

    assert (first.status, first.json["outcome"], first.json["firing_key"]) == (200, "begun", "order-1")
    assert again.json == first.json
    assert (unnamed.status, unnamed.json["outcome"]) == (200, "skipped"), "a firing of its own"
    assert unnamed.json["firing_key"]
    run = await server.client.get(f"/v1/runs/{first.json['run_id']}")
    assert (run.json["login"], run.json["triggered_by"]) == (server.logins[0], "scheduled")


async def test_a_refused_trigger_states_the_reason(server: Served):
    place = (await add(server, "gus")).headers["location"]
    await server.client.post(f"{place}/pause")

    paused = await server.client.post(f"{place}/trigger", {"key": "order-1"})
    nonsense = await server.client.post(f"{place}/trigger", {"key": "a|b"})
    unknown = await server.client.post("/v1/schedules/99999/trigger")

    assert (paused.status, paused.problem) == (409, "conflict")
    assert "paused; resume it" in paused.json["detail"]
    assert (nonsense.status, unknown.status) == (422, 404)
