"""`/v1/campaigns`: statuses, headers, problems, and events."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.http.serving import Client, Event
from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.serving import served
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tests.waiting import patience
from tidegate.core.errors import ValkeyUnavailable
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.dead_letters import dead_letter_store
from tidegate.systems.campaigns.decider import ConsumerContext
from tidegate.systems.campaigns.gauges import CampaignDeadLetterCounts
from tidegate.systems.campaigns.kinds import FirstCome, Kinds
from tidegate.systems.campaigns.model import FIRST_COME
from tidegate.systems.campaigns.worker import CampaignWorker

PLACE = f"/v1/campaigns/{CAMPAIGN}"
NEW: dict[str, Any] = {"id": CAMPAIGN, "kind": FIRST_COME, "total_count": 2}


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[WorkerHarness]:
    url = await migrated_file(tmp_path / "works.db")
    async with worker_harness_at(url, embedded, idle_timeout_seconds=30, max_len=3) as opened:
        yield opened


@pytest.fixture
async def client(harness: WorkerHarness) -> AsyncGenerator[Client]:
    async with served(harness.campaigns, HttpSettings(port=0, most_listeners=2)) as asking:
        yield asking


async def test_a_campaign_is_created_started_changed_shown_and_stopped(client: Client):
    made = await client.post("/v1/campaigns", NEW)
    assert (made.status, made.headers["location"], made.json["state"]) == (201, PLACE, "created")
    assert (await client.post("/v1/campaigns", NEW)).problem == "conflict"
    assert (await client.post(f"{PLACE}/entries", {"user": "ann"})).json == {"answer": "NOT_OPEN"}

    assert (await client.post(f"{PLACE}/start")).json["state"] == "open"
    changed = await client.ask("PUT", PLACE, json={"stock": 5, "title": "Autumn"})
    assert (changed.json["stock"], changed.json["title"], changed.json["total_count"]) == (5, "Autumn", 2)
    shown = (await client.get(PLACE)).json
    assert (shown["campaign"]["stock"], shown["depth"], shown["processes"], shown["idle_ms"]) == (5, 0, [], None)

    stopped = (await client.post(f"{PLACE}/stop")).json
    assert stopped["state"] == "stopped"
    [row] = (await client.get("/v1/campaigns")).json["campaigns"]
    assert row == {**stopped, "depth": 0, "dead": 0, "entered": 0}


@pytest.mark.parametrize("hangs", [False, True])
async def test_campaigns_are_listed_also_while_valkey_is_unavailable(
    harness: WorkerHarness, client: Client, monkeypatch: pytest.MonkeyPatch, hangs: bool
):
    made = (await client.post("/v1/campaigns", NEW)).json

    async def away(questions: object) -> None:
        if hangs:
            await asyncio.Event().wait()
        raise ValkeyUnavailable("it is away")

    monkeypatch.setattr(harness.valkey, "pipeline", away)
    monkeypatch.setattr("tidegate.systems.campaigns.api.campaigns._LINES_WITHIN_S", 0.05)

    [row] = (await client.get("/v1/campaigns")).json["campaigns"]
    assert row == {**made, "depth": None, "dead": None, "entered": None}


async def test_each_result_of_an_entry_has_its_status(client: Client):
    await client.post("/v1/campaigns", NEW)
    await client.post(f"{PLACE}/start", {"starts_at": "2999-01-01T00:00:00Z"})
    early = await client.post(f"{PLACE}/entries", {"user": "ann"})
    assert (early.status, early.json["answer"]) == (409, "NOT_OPEN")
    assert 0 <= int(early.headers["retry-after"]) - early.json["opens_in_ms"] / 1000 <= 1
    await client.ask("PUT", PLACE, json={"starts_at": None})

    sent = {"Idempotency-Key": "k1"}
    first = await client.post(f"{PLACE}/entries", {"user": "a/b c"}, headers=sent)
    again = await client.post(f"{PLACE}/entries", {"user": "a/b c", "key": "k1"})
    other = await client.post(f"{PLACE}/entries", {"user": "a/b c"})
    assert (first.status, first.json) == (again.status, again.json) == (202, {"answer": "ACCEPTED", "number": 1})
    assert (other.status, other.json) == (200, {"answer": "DUPLICATE", "number": 1})
    found = await client.get(first.headers["location"])
    assert (found.json["user"], found.json["state"], found.json["number"]) == ("a/b c", "pending", 1)

    assert (await client.post(f"{PLACE}/entries", {"user": "bob"})).status == 202
    full = await client.post(f"{PLACE}/entries", {"user": "zoe"})
    assert (full.status, full.json) == (409, {"answer": "SOLD_OUT"})
    await client.ask("PUT", PLACE, json={"stock": 100})
    assert (await client.post(f"{PLACE}/entries", {"user": "kim"})).status == 202
    busy = await client.post(f"{PLACE}/entries", {"user": "zoe"})
    assert (busy.status, busy.problem, busy.headers["retry-after"]) == (503, "too-many", "1")


REFUSED: list[tuple[str, str, Any, int, str | None]] = [
    ("POST", "/v1/campaigns/nothing/entries", {"user": "a"}, 404, None),
    ("GET", "/v1/campaigns/nothing", None, 404, None),
    ("GET", "/v1/campaigns/nothing/entries/a", None, 404, None),
    ("GET", "/v1/campaigns/nothing/entries/a/events", None, 404, None),
    ("GET", "/v1/campaigns/nothing/entries", None, 404, None),
    ("GET", "/v1/campaigns/nothing/dead", None, 404, None),
    ("POST", "/v1/campaigns/nothing/start", {}, 404, None),
    ("POST", "/v1/campaigns/..%2f/start", {}, 404, None),
    ("POST", f"{PLACE}/entries", {"user": ""}, 422, "user"),
    ("POST", f"{PLACE}/entries", {"user": "x" * 129}, 422, "user"),
    ("POST", f"{PLACE}/entries", {"user": "a\u0000"}, 422, "user"),
    ("POST", f"{PLACE}/entries", {"user": "a", "data": "x" * 4097}, 422, "data"),
    ("POST", f"{PLACE}/entries", {"user": "a", "colour": 1}, 422, "colour"),
    ("POST", "/v1/campaigns", {**NEW, "id": "a b"}, 422, "id"),
    ("POST", "/v1/campaigns", {**NEW, "kind": "LOTTERY"}, 422, "kind"),
    ("POST", "/v1/campaigns", {**NEW, "kind": "POINTS"}, 422, "points"),
    ("POST", "/v1/campaigns", {**NEW, "starts_at": "2026-01-02T00:00:00"}, 422, "starts_at"),
    ("PUT", PLACE, {"stock": None}, 422, "stock"),
    ("POST", f"{PLACE}/start", {"ends_at": "2020-01-01T00:00:00Z"}, 422, "ends_at"),
    ("DELETE", f"{PLACE}/dead/1-1", None, 404, None),
    ("POST", f"{PLACE}/dead/1-1/replay", None, 404, None),
]


async def test_an_invalid_operation_is_refused_with_the_reason(client: Client):
    await client.post("/v1/campaigns", NEW)
    for method, path, body, status, field in REFUSED:
        answer = await client.ask(method, path, **({} if body is None else {"json": body}))

        assert answer.status == status, (path, body, answer.json)
        assert answer.problem == {404: "not-found", 422: "invalid"}[status]
        assert status == 404 or answer.json["field"] == field, (path, body)


async def test_two_different_keys_in_one_request_are_refused(client: Client):
    await client.post("/v1/campaigns", NEW)
    sent = {"Idempotency-Key": "k1"}
    assert (await client.post(f"{PLACE}/entries", {"user": "a", "key": "k2"}, headers=sent)).status == 422


def telling(harness: WorkerHarness) -> CampaignWorker:
    """One that tells those who listen."""
    kinds, campaigns = Kinds([FirstCome()]), harness.campaigns
    tell = campaigns.result_feed.decided
    context = ConsumerContext(harness.valkey, harness.database, "worker", kinds, campaigns.settings, on_decided=tell)
    return CampaignWorker(context, campaigns.installer)


async def test_a_client_that_follows_its_entry_receives_the_decision(harness: WorkerHarness, client: Client):
    """The listener hears of the decision because a process told it, in whatever process that was."""
    await harness.open()
    await harness.enter("ann")
    events: list[Event] = []
    came = asyncio.Event()

    async def listen() -> None:
        async for event in client.events(f"{PLACE}/entries/ann/events"):
            events.append(event)
            came.set()

    listening = asyncio.create_task(listen())
    await came.wait()
    assert [event.data["state"] for event in events] == ["pending"]

    manager, stopping = telling(harness), asyncio.Event()
    working = asyncio.create_task(manager.run(stopping))
    async with patience():
        await listening  # the stream ends with the result
    stopping.set()
    await working

    assert [event.data["state"] for event in events] == ["pending", "issued"]
    assert (events[-1].kind, events[-1].id, events[-1].data["number"]) == ("result", "ended", 1)
    done = await client.get(f"{PLACE}/entries/ann/events", headers={"Last-Event-ID": "ended"})
    assert (done.status, done.body) == (204, b"")


async def test_event_streams_are_limited_by_the_settings(harness: WorkerHarness, client: Client):
    await harness.open()
    await harness.enter("ann")

    async def listen() -> None:
        async for _ in client.events(f"{PLACE}/entries/ann/events"):
            ready.set()

    listening: list[asyncio.Task[None]] = []
    for _ in range(2):
        ready = asyncio.Event()
        listening.append(asyncio.create_task(listen()))
        await ready.wait()
    assert (await client.get(f"{PLACE}/entries/ann/events")).problem == "too-many"
    for task in listening:
        task.cancel()
    await asyncio.gather(*listening, return_exceptions=True)


async def test_entries_are_paginated(harness: WorkerHarness, client: Client):
    await harness.open(total=3)
    await harness.instance()
    await harness.enter("c", "b", "a")
    await harness.until_decided(3)

    seen, link = list[tuple[int, str]](), f"{PLACE}/entries?limit=2"
    while link is not None:
        page = (await client.get(link)).json
        seen += [(each["number"], each["user"]) for each in page["entries"]]
        link = page["next"]

    assert seen == [(1, "c"), (2, "b"), (3, "a")]


async def test_dead_letters_are_listed_replayed_and_discarded(harness: WorkerHarness, client: Client):
    await harness.open(kind="PICKY", total=3)
    keys = harness.keys()
    for n in range(2):
        await harness.valkey.execute("XADD", keys["stream"], "*", "payload", f"no JSON {n}")
    await harness.valkey.execute("LPUSH", keys["wakeups"], CAMPAIGN)
    await harness.instance()

    async def are_dead() -> bool:
        return (await client.get(PLACE)).json["dead"] == 2

    await harness.until(are_dead)
    page = (await client.get(f"{PLACE}/dead?limit=1")).json
    rest = (await client.get(page["next"])).json
    [first], [second] = page["letters"], rest["letters"]
    assert (first["payload"], second["payload"], first["entry"]) == ("no JSON 0", "no JSON 1", None)
    assert "parse" in first["reason"]

    discarded = await client.ask("DELETE", f"{PLACE}/dead/{first['id']}")
    assert discarded.json == {"id": first["id"], "outcome": "discarded"}
    replayed = await client.post(f"{PLACE}/dead/{second['id']}/replay")
    assert replayed.json == {"id": second["id"], "outcome": "replayed"}
    assert (await client.post(f"{PLACE}/dead/{second['id']}/replay")).status == 404


async def test_dead_letters_of_several_campaigns_are_listed_and_settled_together(harness: WorkerHarness):
    other = "spring-sale-2"
    await harness.open(total=3)
    await harness.open(other, total=3)
    why = ("dead.message", "1-1", "dead.deliveries", "5", "dead.reason", "it is no JSON", "dead.at_ms", "1700000000000")
    for campaign in (CAMPAIGN, CAMPAIGN, other):
        await harness.valkey.execute("XADD", harness.keys(campaign)["dead"], "*", "payload", "no JSON", *why)
    counts = CampaignDeadLetterCounts(harness.valkey, harness.database)
    store = dead_letter_store(harness.campaigns.dead_letters, counts.read)

    listed = await store.page(None, 10)
    first, second = await store.page(None, 2)
    [third] = await store.page(second.id, 2)

    assert [one.source for one in listed] == [CAMPAIGN, CAMPAIGN, other]
    assert [first, second, third] == listed
    assert {(one.name, one.reason) for one in listed} == {("entry", "it is no JSON")}
    assert await store.replay([first.id, third.id]) == 2
    assert await store.replay([first.id, third.id]) == 0
    assert store.discard is not None
    assert await store.discard([second.id]) == 1
    assert await store.replay(["deleted-1-1"]) == await store.discard(["deleted-1-1"]) == 0


async def test_all_dead_letters_are_replayed_at_once(harness: WorkerHarness, client: Client):
    await harness.open(total=3)
    why = ("dead.message", "1-1", "dead.deliveries", "5", "dead.reason", "it is no JSON", "dead.at_ms", "1700000000000")
    for n in range(3):
        await harness.valkey.execute("XADD", harness.keys()["dead"], "*", "payload", f"no JSON {n}", *why)

    replayed = await client.post(f"{PLACE}/dead/replay")

    assert (replayed.status, replayed.json) == (200, {"replayed": 3})
    [row] = (await client.get("/v1/campaigns")).json["campaigns"]
    assert (row["dead"], row["depth"], row["state"]) == (0, 3, "open"), "they are in line again"
    assert (await client.post(f"{PLACE}/dead/replay")).json == {"replayed": 0}
    assert (await client.post("/v1/campaigns/nothing/dead/replay")).status == 404
