"""Rooms over HTTP: for operators, for the shop's server, and for visitors with their passes."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest

from tests.http.serving import Client
from tests.systems.waiting_room.counter import HEADER, bring, put, served, showing
from tests.systems.waiting_room.harness import ROOM, RoomHarness, open_signer
from tidegate.core.errors import ContractBroken
from tidegate.http.application import build_application
from tidegate.http.routes import declaration_of, route
from tidegate.http.settings import HttpSettings
from tidegate.systems.waiting_room import Pace, RoomPlan, WaitingRooms, drawn_place
from tidegate.systems.waiting_room.api.places import AdmissionRates
from tidegate.systems.waiting_room.api.routes import room_api
from tidegate.systems.waiting_room.room_store import open_
from tidegate.systems.waiting_room.scripts import room_keys

KEY = "a-key-of-sixteen-signs"


@pytest.fixture
async def client(harness: RoomHarness) -> AsyncGenerator[Client]:
    async with served(harness.rooms) as opened:
        yield opened


async def opened(client: Client, **plan: Any) -> None:
    made = await client.post("/v1/rooms", {"name": ROOM, "plan": {"capacity": 1, **plan}})
    assert made.status == 201, made
    assert (await client.post(f"/v1/rooms/{ROOM}/open")).status == 200


async def test_a_room_is_created_shown_changed_opened_and_closed(client: Client):
    plan = {"capacity": 5, "session_s": 60, "title": "Spring sale", "entrance": "/shop", "anonymous": True}

    made = await client.post("/v1/rooms", {"name": ROOM, "plan": plan})
    twice = await client.post("/v1/rooms", {"name": ROOM, "plan": plan})
    altered = await put(client, f"/v1/rooms/{ROOM}", {**plan, "capacity": 7, "admit_per_second": 2.5})
    planned = await client.post(f"/v1/rooms/{ROOM}/open", {"opens_at": "2999-12-24T12:00:00+09:00"})
    begun = await client.post(f"/v1/rooms/{ROOM}/open")
    closed = await client.post(f"/v1/rooms/{ROOM}/close")

    assert (made.status, made.headers["location"], made.json["state"]) == (201, f"/v1/rooms/{ROOM}", "closed")
    assert made.json["plan"] == {
        "capacity": 5,
        "admit_per_second": None,
        "session_s": 60.0,
        "longest_session_s": 1800.0,
        "abandon_after_s": 120.0,
        "log_length": 0,
        "title": "Spring sale",
        "entrance": "/shop",
        "anonymous": True,
        "puzzle_bits": 0,
    }
    assert twice.problem == "conflict"
    assert (altered.json["plan"]["capacity"], altered.json["plan"]["admit_per_second"]) == (7, 2.5)
    assert (planned.json["opens_at"], planned.json["seed"]) == ("2999-12-24T03:00:00Z", None)
    assert hashlib.sha256(begun.json["seed"].encode()).hexdigest() == made.json["commitment"]
    assert closed.json["state"] == "closed"
    assert (await client.get("/v1/rooms")).json["rooms"][0]["name"] == ROOM
    assert (await client.get(f"/v1/rooms/{ROOM}")).json["counts"]["waiting"] == 0


async def test_a_change_affects_only_the_named_settings(client: Client, harness: RoomHarness):
    await opened(client, admit_per_second=2, session_s=60, title="Spring sale", entrance="/shop", anonymous=True)
    place = f"/v1/rooms/{ROOM}"
    before = (await client.get(place)).json["plan"]
    everything = {
        "capacity": 3,
        "admit_per_second": 4.5,
        "session_s": 30.5,
        "longest_session_s": 90.0,
        "abandon_after_s": 45.0,
        "log_length": 7,
        "title": "Autumn",
        "entrance": "https://shop.example/in",
        "anonymous": False,
        "puzzle_bits": 0,
    }

    more = await client.ask("PATCH", place, json={"capacity": 7})
    seen_by_the_server = await harness.valkey.execute("HGET", room_keys(harness.valkey, ROOM)["book"], "capacity")
    without = await client.ask("PATCH", place, json={"admit_per_second": None, "entrance": None})
    nothing = await client.ask("PATCH", place, json={})
    all_of_it = await client.ask("PATCH", place, json=everything)

    assert (more.status, more.json["plan"]) == (200, {**before, "capacity": 7})
    assert seen_by_the_server == b"7"
    assert without.json["plan"] == {**before, "capacity": 7, "admit_per_second": None, "entrance": None}
    assert nothing.json["plan"] == without.json["plan"]
    assert all_of_it.json["plan"] == everything
    for change, field in (
        ({"capacity": None}, "capacity"),
        ({"session_s": 91}, "longest_session"),
        ({"entrance": "//evil.example"}, "entrance"),
        ({"rate": 3}, "rate"),
    ):
        refused = await client.ask("PATCH", place, json=change)
        assert (refused.status, refused.problem, refused.json["field"]) == (422, "invalid", field), change
    assert (await client.get(place)).json["plan"] == everything
    assert (await client.ask("PATCH", "/v1/rooms/nowhere", json={"capacity": 1})).problem == "not-found"


async def test_the_list_counts_visitors_by_state_and_marks_rooms_that_were_not_counted(
    client: Client, harness: RoomHarness, monkeypatch: pytest.MonkeyPatch
):
    await opened(client)
    await client.post("/v1/rooms", {"name": "later", "plan": {"capacity": 1}})
    for user in ("ann", "ben"):
        await bring(client, user)
    await harness.run_worker()

    counted = {room["name"]: room["counts"] for room in (await client.get("/v1/rooms")).json["rooms"]}
    monkeypatch.setattr("tidegate.systems.waiting_room.api.rooms._MOST_COUNTED", 1)
    some = {room["name"]: room["counts"] for room in (await client.get("/v1/rooms")).json["rooms"]}

    nobody = {"waiting": 0, "entering": 0, "active": 0, "guests": 0}
    assert counted == {ROOM: {**nobody, "waiting": 1, "active": 1}, "later": nobody}
    assert some == {ROOM: counted[ROOM], "later": None}, "those that are open first"


async def test_a_room_counts_visitors_by_state(client: Client):
    """Arrival numbers are passed over whenever a server starts: they are no count of those who came."""
    await opened(client, capacity=0)
    await bring(client, "ada")

    assert (await client.get(f"/v1/rooms/{ROOM}")).json["counts"] == {
        "waiting": 1,
        "entering": 0,
        "active": 0,
        "guests": 0,
        "opens_in_ms": 0,
    }


async def test_invalid_room_settings_are_refused(client: Client):
    for plan, field in (
        ({"capacity": -1}, "plan.capacity"),
        ({"capacity": 1, "session_s": 60, "longest_session_s": 59}, "longest_session"),
        ({"capacity": 1, "entrance": "//evil.example"}, "entrance"),
        ({"capacity": 1, "entrance": "/\\evil.example"}, "entrance"),
        ({"capacity": 1, "entrance": "/a b"}, "entrance"),
        ({"capacity": 1, "entrance": "javascript:alert(1)"}, "entrance"),
        ({"capacity": 1, "entrance": "https:///x"}, "entrance"),
        ({"capacity": 1, "entrance": "https://shop@evil.example/"}, "entrance"),
        ({"capacity": 1, "entrance": "https://shop:port/"}, "entrance"),
        ({"capacity": 1, "entrance": "shop"}, "entrance"),
        ({"capacity": 1, "title": "a\nb"}, "title"),
    ):
        refused = await client.post("/v1/rooms", {"name": ROOM, "plan": plan})
        assert (refused.status, refused.problem, refused.json["field"]) == (422, "invalid", field), plan


async def test_a_room_name_is_valid_in_urls_and_cookies(client: Client):
    for name in ("a b", "ä", "a/b", "", ".hidden", "a;b", "x" * 65):
        assert (await client.post("/v1/rooms", {"name": name, "plan": {"capacity": 1}})).problem == "invalid", name
    assert (await client.post("/v1/rooms", {"name": "Sale-2026_b.1", "plan": {"capacity": 1}})).status == 201


async def test_a_visitor_joins_waits_moves_up_is_admitted_and_leaves(client: Client, harness: RoomHarness):
    await opened(client)
    first, second, third = [await bring(client, user) for user in ("ada", "bob", "cem")]
    assert (first["state"], first["position"], first["opens_in_ms"]) == ("waiting", 1, 0)
    await harness.run_worker()

    inside = (await client.get(f"/v1/rooms/{ROOM}/place", **showing(first["pass"]))).json
    behind = (await client.get(f"/v1/rooms/{ROOM}/place", **showing(third["pass"]))).json
    left = await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **showing(second["pass"]))
    moved = (await client.get(f"/v1/rooms/{ROOM}/place", **showing(behind["pass"]))).json

    assert (inside["state"], inside["left_ms"], inside["position"]) == ("inside", 600_000, None)
    assert (behind["state"], behind["position"], behind["waiting"]) == ("waiting", 2, 2)
    assert (left.json["state"], left.json["pass"]) == ("nowhere", None)
    assert (moved["position"], moved["waiting"]) == (1, 1)
    gone = await client.get(f"/v1/rooms/{ROOM}/place", **showing(second["pass"]))
    assert (gone.status, gone.json["state"], gone.json["pass"]) == (200, "nowhere", None)


async def test_only_the_pass_of_an_active_session_is_accepted(client: Client, harness: RoomHarness):
    await opened(client)
    ada, bob = await bring(client, "ada"), await bring(client, "bob")
    await harness.run_worker()
    within = (await client.get(f"/v1/rooms/{ROOM}/place", **showing(ada["pass"]))).json["pass"]

    passed = await client.post(f"/v1/rooms/{ROOM}/check", **showing(within))
    by_cookie = await client.post(f"/v1/rooms/{ROOM}/check", cookies={f"tidegate_pass_{ROOM}": within})

    assert (passed.status, passed.json) == (200, {"room": ROOM, "user": "ada", "left_ms": 600_000})
    assert by_cookie.json == passed.json
    for token, problem in ((ada["pass"], "not-active"), (bob["pass"], "not-active"), (within[:-2], "pass-refused")):
        refused = await client.post(f"/v1/rooms/{ROOM}/check", **showing(token))
        assert (refused.status, refused.problem) == (403, problem)
        assert token not in refused.body.decode(), "a pass is a secret"
    assert (await client.post(f"/v1/rooms/{ROOM}/check")).problem == "pass-refused"
    await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **showing(within))
    assert (await client.post(f"/v1/rooms/{ROOM}/check", **showing(within))).problem == "not-active"


async def test_a_session_is_prolonged_by_activity(client: Client, harness: RoomHarness):
    await opened(client, session_s=60, longest_session_s=90)
    ada = await bring(client, "ada")
    assert (await client.post(f"/v1/rooms/{ROOM}/renewals", **showing(ada["pass"]))).problem == "not-active"
    await harness.run_worker()
    within = (await client.get(f"/v1/rooms/{ROOM}/place", **showing(ada["pass"]))).json["pass"]

    harness.clock.advance(timedelta(seconds=40))
    renewed = await client.post(f"/v1/rooms/{ROOM}/renewals", **showing(within))

    assert (renewed.json["state"], renewed.json["left_ms"]) == ("inside", 50_000)


async def test_named_users_are_admitted_immediately(client: Client):
    await opened(client, capacity=0)
    ada = await bring(client, "ada")

    assert (await client.post(f"/v1/rooms/{ROOM}/admissions", {"users": ["ada", "vip"]})).json == {"admitted": 2}
    assert (await client.get(f"/v1/rooms/{ROOM}/place", **showing(ada["pass"]))).json["state"] == "inside"
    assert (await client.post(f"/v1/rooms/{ROOM}/admissions", {"users": []})).problem == "invalid"


async def test_before_the_start_there_is_no_position_and_afterwards_the_draw_can_be_verified(
    client: Client, harness: RoomHarness
):
    start = harness.clock.now() + timedelta(minutes=1)
    made = (await client.post("/v1/rooms", {"name": ROOM, "plan": {"capacity": 0}})).json
    await client.post(f"/v1/rooms/{ROOM}/open", {"opens_at": start.isoformat()})
    users = [await bring(client, f"user-{n}") for n in range(5)]
    early = (await client.get(f"/v1/rooms/{ROOM}/draw", **showing(users[0]["pass"]))).json

    harness.clock.advance(timedelta(minutes=1))
    drawn = [(await client.get(f"/v1/rooms/{ROOM}/draw", **showing(user["pass"]))).json for user in users]
    placed = [(await client.get(f"/v1/rooms/{ROOM}/place", **showing(user["pass"]))).json for user in users]
    late = await bring(client, "late")

    assert [(user["state"], user["position"], user["opens_in_ms"]) for user in users] == [("drawing", None, 60_000)] * 5
    assert (early["commitment"], early["seed"], early["number"], early["place"]) == (
        made["commitment"],
        None,
        None,
        None,
    )
    seed = drawn[0]["seed"]
    assert hashlib.sha256(seed.encode()).hexdigest() == made["commitment"]
    assert [each["number"] for each in drawn] == [1, 2, 3, 4, 5]
    assert [each["place"] for each in drawn] == [drawn_place(seed, n) for n in range(1, 6)]
    by_lot = sorted(range(5), key=lambda n: drawn[n]["place"])
    assert by_lot == sorted(range(5), key=lambda n: placed[n]["position"])
    assert late["position"] == 6
    assert (await client.get(f"/v1/rooms/{ROOM}/draw")).json["number"] is None

    harness.clock.advance(timedelta(hours=1))  # a browser still has the cookie
    kept = await client.get(f"/v1/rooms/{ROOM}/draw", headers={"cookie": f"tidegate_pass_{ROOM}={users[0]['pass']}"})
    assert (kept.status, kept.json["seed"], kept.json["number"]) == (200, seed, None)


async def test_concurrent_requests_measure_the_rate_once(harness: RoomHarness, monkeypatch: pytest.MonkeyPatch):
    room, paces, measured = await harness.open(), AdmissionRates(), 0
    measure = room.pace

    async def counted() -> Pace | None:
        nonlocal measured
        measured += 1
        return await measure()

    monkeypatch.setattr(room, "pace", counted)
    await asyncio.gather(*(paces.of(room) for _ in range(20)))

    assert measured == 1


async def test_a_pass_is_valid_for_one_room_until_it_expires_and_unchanged(client: Client, harness: RoomHarness):
    await opened(client, abandon_after_s=30)
    await harness.rooms.create("other", RoomPlan(capacity=1))
    token = (await bring(client, "ada"))["pass"]

    async def refused(room: str, shown: str) -> str:
        return (await client.get(f"/v1/rooms/{room}/place", **showing(shown))).problem

    assert await refused("other", token) == "pass-refused"
    assert await refused(ROOM, "x" * 3000) == "pass-refused"
    assert await refused("nowhere", token) == "not-found"
    assert await refused("a%20b", token) == "not-found"
    harness.clock.advance(timedelta(seconds=31))
    assert await refused(ROOM, token) == "pass-refused"


async def test_a_closed_room_cannot_be_joined(client: Client):
    await client.post("/v1/rooms", {"name": ROOM, "plan": {"capacity": 1}})
    refused = await client.post(f"/v1/rooms/{ROOM}/entries", {"user": "ada"})
    assert (refused.status, refused.problem) == (409, "room-closed")


async def test_an_old_pass_restores_the_old_place_when_the_server_lost_the_line(client: Client, harness: RoomHarness):
    await opened(client, capacity=0)
    first, second = await bring(client, "ada"), await bring(client, "bob")
    await harness.valkey.execute("FLUSHALL")

    late = await client.post(f"/v1/rooms/{ROOM}/entries", {"user": "bob", "pass": second["pass"]})
    early = await client.post(f"/v1/rooms/{ROOM}/entries", {"user": "ada", "pass": first["pass"]})

    assert (late.json["position"], early.json["position"]) == (1, 1)


async def test_with_keys_configured_visitors_need_only_their_pass_and_others_a_key(harness: RoomHarness):
    async with served(harness.rooms, HttpSettings.model_validate({"api_key": KEY})) as client:
        bearer = {"Authorization": f"Bearer {KEY}"}
        await client.post("/v1/rooms", {"name": ROOM, "plan": {"capacity": 1}}, headers=bearer)
        await client.post(f"/v1/rooms/{ROOM}/open", headers=bearer)
        entry = await client.post(f"/v1/rooms/{ROOM}/entries", {"user": "ada"}, headers=bearer)
        shown = showing(entry.json["pass"])

        assert (await client.get(f"/v1/rooms/{ROOM}/place", **shown)).status == 200
        assert (await client.get(f"/v1/rooms/{ROOM}/draw")).status == 200
        assert (await client.post(f"/v1/rooms/{ROOM}/renewals", **shown)).problem == "not-active"
        assert (await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **shown)).status == 200
        for method, path in (
            ("GET", "/v1/rooms"),
            ("POST", "/v1/rooms"),
            ("GET", f"/v1/rooms/{ROOM}"),
            ("PUT", f"/v1/rooms/{ROOM}"),
            ("PATCH", f"/v1/rooms/{ROOM}"),
            ("POST", f"/v1/rooms/{ROOM}/open"),
            ("POST", f"/v1/rooms/{ROOM}/close"),
            ("POST", f"/v1/rooms/{ROOM}/admissions"),
            ("POST", f"/v1/rooms/{ROOM}/entries"),
            ("POST", f"/v1/rooms/{ROOM}/check"),
            ("GET", f"/v1/rooms/{ROOM}/place/../check"),
            ("GET", f"/v1/rooms/{ROOM}/place/x"),
            ("GET", f"/x/v1/rooms/{ROOM}/place"),
        ):
            assert (await client.ask(method, path, **shown)).problem == "key-needed", (method, path)


async def test_a_change_by_another_process_is_known_at_the_next_request(client: Client, harness: RoomHarness):
    """The server tells the room's epoch with every answer; an older one is read again."""
    await opened(client, capacity=0, abandon_after_s=60)
    token = (await bring(client, "ada"))["pass"]
    here = await harness.rooms.room(ROOM)
    elsewhere = WaitingRooms(harness.valkey, harness.database, open_signer)
    plan = RoomPlan(capacity=0, abandon_after=timedelta(seconds=300), title="Longer", entrance="/in", anonymous=True)
    await elsewhere.replace_plan(ROOM, plan)

    fresh = (await client.get(f"/v1/rooms/{ROOM}/place", **showing(token))).json["pass"]
    assert here.room.plan == plan
    harness.clock.advance(timedelta(seconds=200))
    assert (await client.get(f"/v1/rooms/{ROOM}/place", **showing(fresh))).json["position"] == 1

    await elsewhere.change_plan(ROOM, {"anonymous": False})
    assert not (await here.present()).plan.anonymous
    await elsewhere.close(ROOM)
    assert (await client.post(f"/v1/rooms/{ROOM}/entries", {"user": "bob"})).problem == "room-closed"


async def test_a_start_postponed_by_another_process_keeps_the_seed_secret(client: Client, harness: RoomHarness):
    start = harness.clock.now() + timedelta(minutes=1)
    await client.post("/v1/rooms", {"name": ROOM, "plan": {"capacity": 0}})
    await client.post(f"/v1/rooms/{ROOM}/open", {"opens_at": start.isoformat()})
    await WaitingRooms(harness.valkey, harness.database, open_signer).open(ROOM, start + timedelta(hours=1))
    harness.clock.advance(timedelta(minutes=2))

    assert (await client.get(f"/v1/rooms/{ROOM}/draw")).json["seed"] is None
    assert (await client.get(f"/v1/rooms/{ROOM}")).json["seed"] is None


async def test_a_start_unknown_to_the_server_keeps_the_seed_secret(client: Client, harness: RoomHarness):
    """It draws by the start that it knows; the process that changed the start died before it updated the server."""
    start = harness.clock.now() + timedelta(minutes=2)
    made = (await client.post("/v1/rooms", {"name": ROOM, "plan": {"capacity": 0}})).json
    await client.post(f"/v1/rooms/{ROOM}/open", {"opens_at": start.isoformat()})
    await harness.database.transaction(open_, ROOM, start - timedelta(minutes=1))
    harness.clock.advance(timedelta(seconds=90))
    seed = (await harness.rooms.room(ROOM)).room.seed

    shown = [await client.get(path) for path in ("/v1/rooms", f"/v1/rooms/{ROOM}", f"/v1/rooms/{ROOM}/draw")]

    assert {each.status for each in shown} == {200}
    assert [made["commitment"].encode() in each.body for each in shown] == [True] * 3
    assert [seed.encode() in each.body for each in shown] == [False] * 3


async def test_a_header_takes_precedence_over_a_cookie(client: Client):
    await opened(client, capacity=0)
    ada, bob = await bring(client, "ada"), await bring(client, "bob")

    shown = await client.get(
        f"/v1/rooms/{ROOM}/place", headers={HEADER: ada["pass"]}, cookies={f"tidegate_pass_{ROOM}": bob["pass"]}
    )

    assert shown.json["user"] == "ada"


async def test_a_path_is_public_for_all_methods_or_for_none(harness: RoomHarness):
    """The door knows nothing of methods."""
    routes = room_api(harness.rooms, HttpSettings()).routes
    [(handler, shown)] = [
        (each, found) for each in routes if (found := declaration_of(each)) and found.operation == "show_place"
    ]
    with pytest.raises(ContractBroken):
        build_application([handler, route("PUT", shown.route, shown.handler, "x")], HttpSettings())
