"""A server that is away costs its own parts of the dashboard, soon and with a reason; the page stays up."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.http.proxied_servers import Cut, wired_to_servers
from tests.http.serving import Client
from tests.waiting import look_again, patience
from tidegate.storage.valkey import connection

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wired(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cut]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "_ANSWER_WITHIN_S", 3600.0)  # the client alone would wait for an hour
        async with wired_to_servers(tmp_path_factory.mktemp("away"), users=1, dashboard=True) as cut:
            yield cut


async def until_whole(client: Client) -> None:
    """Until everything is known again, and somebody leads."""
    async with patience():
        while True:
            told = (await client.get("/v1/overview")).json
            if not told["unknown"] and told["leader"]:
                return
            await look_again()


async def asked(client: Client, path: str, *, known: str = "at") -> dict[str, Any]:
    """What is told, once the part `known` is: on a busy machine a server that is there may answer too late once."""
    async with patience():
        while True:
            answer = await client.get(path)
            assert answer.status == 200, answer
            if answer.json.get(known, True) is not None:
                return answer.json
            await look_again()


def unknown(told: dict[str, Any]) -> set[str]:
    return {each["part"] for each in told["unknown"]}


SILENT, REFUSING = "silent", "refusing"


@pytest.mark.parametrize("how", [REFUSING, SILENT])
async def test_without_valkey_sql_data_is_shown_and_the_rest_is_null_with_a_reason(how: str, wired: Cut):
    client = wired.client
    await until_whole(client)
    if how == SILENT:
        wired.valkey.delay(3600)
    else:
        await wired.valkey.refuse()
    try:
        overview = await asked(client, "/v1/overview", known="runs")
        runtime = await asked(client, "/v1/runtime", known="outbox")
        page = await client.get("/")
    finally:
        wired.valkey.delay(0)
        if how == REFUSING:
            await wired.valkey.listen()

    assert page.status == 200
    assert unknown(overview) == {"leader", "processes", "dead/messages"}
    assert (overview["leader"], overview["processes"]) == (None, None)
    assert overview["runs"] is not None
    assert overview["waits"] == [], "nobody waits, which SQL knows"
    up = {server["name"]: server["is_up"] for server in overview["servers"]}
    assert up == {"database": True, "valkey": False}
    assert overview["attention"][0] == {
        "severity": "critical",
        "text": "Valkey does not answer",
        "link": "#/runtime",
        "until": None,
    }
    assert not any("leads" in each["text"] for each in overview["attention"]), "nobody knows"
    assert {"streams", "timers", "gate", "processes"} == unknown(runtime)
    assert runtime["outbox"] == {"pending": 0, "dead": 0, "oldest_at": None}
    assert {each["reason"] for each in runtime["unknown"]} <= {
        f"{whom} {what}"
        for whom in ("Valkey", "Valkey or the database")
        for what in ("cannot be reached", "does not answer in time")
    }


async def test_without_the_database_processes_and_valkey_data_are_shown(wired: Cut):
    client = wired.client
    await until_whole(client)
    await wired.database.refuse()
    try:
        overview = await asked(client, "/v1/overview", known="leader")
        runtime = await asked(client, "/v1/runtime", known="streams")
        crawl = await asked(client, "/v1/crawl/overview")
        history = await asked(client, "/v1/history?series=stream/")
    finally:
        await wired.database.listen()

    assert {"runs", "jobs", "active", "failed", "waits", "dead/events", "dead/crawl"} <= unknown(overview)
    assert (overview["runs"], overview["waits"], overview["failed"]) == (None, None, None)
    assert overview["leader"] == wired.served.collection.parts.owner
    assert overview["attention"][0]["text"] == "The database does not answer"
    assert runtime["outbox"] is None
    named = [f"{part}{name}" for part in ("", "github.", "crawl.") for name in ("jobs", "alarms")]
    assert [stream["name"] for stream in runtime["streams"]] == named
    assert unknown(crawl) == {"active", "pages", "raws", "hosts", "identities"}
    assert history["series"], "what was seen before is there"


@pytest.mark.full
async def test_event_streams_report_the_outage_and_the_recovery(wired: Cut):
    await until_whole(wired.client)
    events = wired.client.events("/v1/live?topic=runs&topic=overview")

    async def until_told(is_so: Callable[[str, Any], bool]) -> None:
        async with patience():
            while True:
                event = await anext(events)
                if event.kind and is_so(event.kind, event.data):
                    return

    await until_told(lambda kind, _: kind == "runs")
    await wired.database.refuse()
    try:
        await until_told(lambda kind, data: kind == "problem" and (data["topic"], data["status"]) == ("runs", 503))
        await until_told(lambda kind, data: kind == "overview" and data["runs"] is None)
    finally:
        await wired.database.listen()
    await until_told(lambda kind, _: kind == "runs")
    await until_told(lambda kind, data: kind == "overview" and data["runs"] is not None)
