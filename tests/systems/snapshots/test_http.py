"""Snapshots over HTTP: the contract, tags, waiting, events, refreshes and dead letters."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from tests.http.serving import Client, Event
from tests.systems.snapshots.deployment import Deployment, deployed, until
from tests.systems.snapshots.http_service import serve_snapshots
from tests.waiting import patience
from tidegate.core.priority import Priority
from tidegate.http import Binding
from tidegate.http.settings import HttpSettings
from tidegate.primitives.coalescer import Coalescer
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.dead_letters import dead_letter_store
from tidegate_simulators.game import FaultKind, GameSimulator

HTTP = HttpSettings(port=0)
_SECOND = timedelta(seconds=1)


@pytest.fixture
async def client(deployment: Deployment) -> AsyncGenerator[Client]:
    """Answers and works in this process."""
    stopping = asyncio.Event()
    with Binding(HTTP) as binding:
        service = serve_snapshots(deployment.snapshots, HTTP, binding)
        async with deployment.working(), aiohttp.ClientSession() as session:
            serving = asyncio.create_task(service.run(stopping))
            yield Client(session, binding.url)
            stopping.set()
            await serving


async def test_a_snapshot_is_read_and_waited_for(client: Client, deployment: Deployment):
    cold = await client.get("/v1/snapshots/character/7")
    fresh = await client.get("/v1/snapshots/character/7?wait=10")

    assert (cold.status, cold.json["freshness"], cold.json["snapshot"]) == (200, "UPDATING", None)
    assert (fresh.status, fresh.json["freshness"]) == (200, "FRESH")
    truth = deployment.sim.truth(7)
    assert truth is not None
    assert fresh.json["snapshot"] == truth.kept
    assert deployment.sim.calls_of(7) == 1


async def test_a_reader_with_the_current_etag_gets_304(client: Client, deployment: Deployment):
    fresh = await client.get("/v1/snapshots/character/7?wait=10")
    tag = fresh.headers["etag"]

    for known in (tag, f'"other", {tag}'):
        again = await client.get("/v1/snapshots/character/7", headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    other = await client.get("/v1/snapshots/character/7", headers={"If-None-Match": '"other"'})
    assert other.status == 200

    deployment.sim.change(7)
    await client.post("/v1/snapshots/character/7/refresh")
    changed = await until(lambda: _changed(client, tag))
    assert changed.headers["etag"] != tag


async def test_the_names_of_overview_and_prefetch_are_no_kinds(client: Client):
    overview, prefetch = [await client.get(f"/v1/snapshots/{each}") for each in ("overview", "prefetch")]

    assert (overview.status, [each["name"] for each in overview.json["kinds"]]) == (200, ["character"])
    assert (prefetch.status, prefetch.json["spent"]) == (200, 0)


async def test_a_refresh_is_queued_once(client: Client, deployment: Deployment):
    await deployment.snapshots.limiter.pause(_SECOND)
    asked = [await client.post("/v1/snapshots/character/7/refresh") for _ in range(2)]

    assert [each.status for each in asked] == [202, 202]
    assert [each.json["outcome"] for each in asked] == ["queued", "already_processing"]
    await client.get("/v1/snapshots/character/7?wait=10")
    assert deployment.sim.calls_of(7) == 1


async def test_clients_receive_every_refresh(client: Client, deployment: Deployment):
    await client.get("/v1/snapshots/character/7?wait=10")
    async with patience(), aclosing(_events(client, "/v1/snapshots/character/7/events")) as events:
        first = await anext(events)
        deployment.sim.change(7)
        await client.post("/v1/snapshots/character/7/refresh")
        second = await anext(events)

    assert (first.kind, first.data["freshness"]) == ("snapshot", "FRESH")
    assert second.data["snapshot"]["version"] == first.data["snapshot"]["version"] + 1
    assert int(second.id) > int(first.id)


async def test_clients_stay_connected_when_a_read_takes_too_long(
    client: Client, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    tried = asyncio.Event()

    async def too_slow(*_: str) -> None:
        tried.set()
        raise TimeoutError

    async with patience(), aclosing(_events(client, "/v1/snapshots/character/7/events")) as events:
        await client.get("/v1/snapshots/character/7?wait=10")
        first = await anext(events)
        with monkeypatch.context() as patched:
            patched.setattr(deployment.snapshots.reader, "read", too_slow)
            await deployment.snapshots.feed.tell(["character/7"])
            await tried.wait()
        deployment.sim.change(7)
        await client.post("/v1/snapshots/character/7/refresh")
        second = await anext(events)

    assert int(second.id) > int(first.id)


async def test_a_stop_ends_waits_and_event_streams(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    async with deployed(tmp_path, embedded, sim) as deployment:  # nobody works
        stopping = asyncio.Event()
        with Binding(HTTP) as binding:
            service = serve_snapshots(deployment.snapshots, HTTP, binding)
            serving = asyncio.create_task(service.run(stopping))
            async with aiohttp.ClientSession() as session:
                client = Client(session, binding.url)
                events = client.events("/v1/snapshots/character/7/events")
                await anext(events)
                waiting = asyncio.create_task(client.get("/v1/snapshots/character/7?wait=20"))
                await until(lambda: deployment.snapshots.feed.watchers_of("character/7") == 2)
                stopping.set()
                async with patience():
                    reply = await waiting
                    assert [event async for event in events] == []
                    await serving

    assert reply.json["freshness"] == "UPDATING"


async def test_invalid_requests_are_refused(client: Client):
    kind = await client.get("/v1/snapshots/pirate/7")
    key = await client.get("/v1/snapshots/character/seven")
    wait = await client.get("/v1/snapshots/character/7?wait=-1")
    events = await client.get("/v1/snapshots/character/seven/events")

    assert [each.status for each in (kind, key, wait, events)] == [404, 422, 422, 422]
    assert kind.json["detail"] == "there is no kind of snapshots 'pirate'; there is character"
    assert key.problem == "invalid"


async def test_dead_letters_are_listed_shown_replayed_and_discarded(client: Client, deployment: Deployment):
    deployment.sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=7)
    deployment.sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=8)
    for key in (7, 8):
        await client.post(f"/v1/snapshots/character/{key}/refresh")
        await until(lambda: _dead(client, key - 6))  # noqa: B023 - it is awaited at once

    page = (await client.get("/v1/snapshots/dead?limit=1")).json
    rest = (await client.get(page["next"])).json
    [first], [second] = page["letters"], rest["letters"]
    assert (first["subject"], first["reason"], rest["next"]) == ("character/7", "UPSTREAM_4XX", None)
    assert (await client.get(f"/v1/snapshots/dead/{first['id']}")).json == first
    assert first["event"]["reason"] == "USER_REQUEST"

    replayed = await client.post(f"/v1/snapshots/dead/{first['id']}/replay")
    await Coalescer(deployment.parts.valkey, name="snapshots").request("character/8", Priority.HIGH)
    kept = await client.post(f"/v1/snapshots/dead/{second['id']}/replay")
    assert (kept.status, kept.json["outcome"]) == (200, "already_processing")
    dropped = await client.ask("DELETE", f"/v1/snapshots/dead/{second['id']}")
    assert (replayed.json["outcome"], dropped.json["outcome"]) == ("replayed", "dropped")
    assert (await client.get("/v1/snapshots/character/7?wait=10")).json["freshness"] == "FRESH"
    assert (await client.get("/v1/snapshots/dead")).json["letters"] == []
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/replay")):
        for letter in (first["id"], "17", "1-2-3", "9" * 80):
            gone = await client.ask(method, f"/v1/snapshots/dead/{letter}{path}")
            assert (gone.status, gone.problem) == (404, "not-found"), letter


async def test_dead_letters_are_replayed_in_pages_and_those_in_progress_are_kept(
    client: Client, deployment: Deployment
):
    for key in (7, 8, 9):
        deployment.sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=key)
        await client.post(f"/v1/snapshots/character/{key}/refresh")
        await until(lambda: _dead(client, key - 6))  # noqa: B023 - it is awaited at once
    await Coalescer(deployment.parts.valkey, name="snapshots").request("character/8", Priority.HIGH)

    first = (await client.post("/v1/snapshots/dead/replay", {"limit": 2})).json
    rest = (await client.post("/v1/snapshots/dead/replay", {"after": first["next_after"]})).json

    assert (first["replayed"], first["stayed"]) == (1, 1)
    assert rest == {"replayed": 1, "stayed": 0, "next_after": None}
    [kept] = (await client.get("/v1/snapshots/dead")).json["letters"]
    assert kept["subject"] == "character/8"
    await client.ask("DELETE", f"/v1/snapshots/dead/{kept['id']}")


async def test_dead_letters_can_be_settled_by_group(client: Client, deployment: Deployment):
    for key in (7, 8, 9):
        deployment.sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=key)
        await client.post(f"/v1/snapshots/character/{key}/refresh")
        await until(lambda: _dead(client, key - 6))  # noqa: B023 - it is awaited at once
    store = dead_letter_store(deployment.snapshots.dead, deployment.snapshots.transport)
    await Coalescer(deployment.parts.valkey, name="snapshots").request("character/8", Priority.HIGH)

    seventh, eighth, ninth = listed = await store.page(None, 10)
    assert {(one.source, one.name) for one in listed} == {("", "character")}
    assert seventh.reason.startswith("UPSTREAM_4XX: ")
    assert await store.page(seventh.id, 1) == [eighth]
    assert await store.replay([seventh.id, eighth.id]) == 1, "one is being refreshed"
    assert store.discard is not None
    assert await store.discard([eighth.id, ninth.id]) == 2
    assert await store.discard([eighth.id]) == await store.replay([ninth.id]) == 0
    assert (await client.get("/v1/snapshots/dead")).json["letters"] == []


async def test_the_metrics_of_the_service_level_are_exported(client: Client, deployment: Deployment):
    await client.get("/v1/snapshots/character/7?wait=10")
    told = (await client.get("/metrics")).body.decode()

    for name in (
        'rate_limiter_acquired_total{priority="high"}',
        "rate_limiter_rps",
        'consumer_lag{group="high-worker",topic="update-priority-high"} 0.0',
        "producer_send_failed_total",
        "dedup_coalesce_hit_total",
        "update_process_duration_seconds_count",
        "obsolete_event_skipped_total",
        "db_circuit_breaker_state 0.0",
        "db_upsert_duration_seconds_count",
        "redis_circuit_breaker_state 0.0",
        "redis_command_duration_seconds_count",
        "dlq_message_count 0.0",
    ):
        assert name in told, name


async def _events(client: Client, path: str) -> AsyncGenerator[Event]:
    async for event in client.events(path):
        yield event


async def _changed(client: Client, tag: str) -> object:
    reply = await client.get("/v1/snapshots/character/7", headers={"If-None-Match": tag})
    return reply if reply.status == 200 else None


async def _dead(client: Client, count: int) -> bool:
    return len((await client.get("/v1/snapshots/dead")).json["letters"]) == count
