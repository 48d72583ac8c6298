"""The shop over HTTP: who is let through the door, and what is answered."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from examples.ticketing import catalogue, payments
from examples.ticketing.bank import Card
from examples.ticketing.shop import BOARD

from tests.http.serving import Client
from tests.servers.migrated import migrated_file
from tests.servers.valkey import ValkeyServer
from tests.ticketing.harness import TicketingHarness, harness_at
from tests.ticketing.serving import Buyer, served
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey.connection import connected
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.api.places import COOKIE

ENDS = {"hold": timedelta(), "visit": timedelta(minutes=10)}
"""After the end of a hold."""


@pytest.fixture
async def client(harness: TicketingHarness) -> AsyncGenerator[Client]:
    async with served(harness) as opened:
        yield opened


async def enter(harness: TicketingHarness, client: Client, schedule: int, user: str = "ada") -> Buyer:
    [pass_] = await harness.enter(schedule, user)
    return Buyer(client, pass_)


async def test_a_seat_is_selected_held_and_paid(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)

    seats = await ada.ask("GET", f"/api/schedules/{sale}/seats")
    held = await ada.reserve(sale, "A2")
    paid = await ada.pay(held.json["id"])
    seen = await ada.ask("GET", f"/api/reservations/{held.json['id']}")

    assert seats.json["seats"][1] == {"label": "A2", "price": 200, "availability": "free"}
    assert (held.status, held.json["seat"], held.json["state"]) == (201, "A2", "held")
    assert (paid.status, paid.json["state"], seen.json["state"]) == (201, "completed", "paid")


async def test_a_user_without_a_session_is_told_where_to_wait(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    await harness.enter(sale, "ada")
    held = await harness.reserve(sale, "A1", "ada")

    nobody, forger = Buyer(client, None), Buyer(client, "made.up")
    refused = [
        await nobody.ask("GET", f"/api/schedules/{sale}/seats"),
        await forger.ask("GET", f"/api/schedules/{sale}/seats"),
        await nobody.reserve(sale, "A1"),
        await nobody.pay(held.id),
        await nobody.ask("GET", f"/api/reservations/{held.id}"),
        await nobody.ask("DELETE", f"/api/reservations/{held.id}"),
    ]

    assert {reply.status for reply in refused} == {403}
    assert {reply.json["waiting_page"] for reply in refused} == {f"/rooms/schedule-{sale}"}
    assert await harness.state(held) == "held"


async def test_on_pages_a_user_without_a_session_is_redirected_to_the_waiting_page(
    harness: TicketingHarness, client: Client
):
    sale = await harness.sale()

    reply = await client.get(f"/schedules/{sale}")

    assert (reply.status, reply.headers["location"]) == (303, f"/rooms/schedule-{sale}")


async def test_a_pass_for_one_concert_is_refused_for_another(harness: TicketingHarness, client: Client):
    sale, other = await harness.sale(), await harness.sale()
    ada = await enter(harness, client, sale)

    assert (await ada.ask("GET", f"/api/schedules/{other}/seats")).status == 403


async def test_a_user_neither_sees_nor_pays_the_reservation_of_another(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada, bob = await enter(harness, client, sale, "ada"), await enter(harness, client, sale, "bob")
    held = (await ada.reserve(sale, "A1")).json["id"]

    replies = [await bob.ask("GET", f"/api/reservations/{held}"), await bob.pay(held)]

    assert [reply.status for reply in replies] == [404, 404]


async def test_a_taken_seat_is_a_conflict(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada, bob = await enter(harness, client, sale, "ada"), await enter(harness, client, sale, "bob")
    await ada.reserve(sale, "A1")

    reply = await bob.reserve(sale, "A1")

    assert (reply.status, reply.json["error"]) == (409, "seat-taken")


@pytest.mark.parametrize(
    ("card", "status", "state"),
    [("4000000000000002", 402, "declined"), ("4000000000000119", 202, "charging")],
)
async def test_the_answer_of_the_bank_is_shown(
    harness: TicketingHarness, client: Client, card: str, status: int, state: str
):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)
    held = (await ada.reserve(sale, "A1")).json["id"]

    reply = await ada.pay(held, card=card)

    assert (reply.status, reply.json["state"]) == (status, state)


@pytest.mark.parametrize("card", ["", "1", "4242 4242", None, 7])
async def test_an_invalid_card_is_refused(harness: TicketingHarness, client: Client, card: Any):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)
    held = (await ada.reserve(sale, "A1")).json["id"]

    assert (await ada.pay(held, card=card)).status == 400


async def test_a_payment_needs_a_key(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)
    held = (await ada.reserve(sale, "A1")).json["id"]

    assert (await ada.pay(held, key=None)).status == 400


async def test_on_pages_a_payment_settled_later_leads_to_its_ticket(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)
    held = await harness.reserve(sale, "A1", "ada")
    payment = await harness.pay(held, card=Card.MUTE)

    before = await ada.ask("GET", f"/reservations/{held.id}")
    harness.clock.advance(harness.shop.plan.settle_after)
    await harness.keep()
    after = await ada.ask("GET", f"/reservations/{held.id}")

    assert (before.status, "A payment is under way" in before.body.decode()) == (200, True)
    settled = await harness.database.read(payments.get, payment.id)
    assert (after.status, after.headers["location"]) == (303, f"/tickets/{settled.ticket}")


async def test_on_pages_a_declined_card_does_not_offer_an_expired_seat(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)
    held = await harness.reserve(sale, "A1", "ada")
    place, form = f"/reservations/{held.id}/payments", f"card={Card.POOR}&key=k"

    first = await ada.ask("POST", place, data=form)
    harness.clock.advance(harness.shop.plan.hold_for)
    await harness.keep()
    again = await ada.ask("POST", place, data=form)

    assert (first.status, "The seat is still yours." in first.body.decode()) == (402, True)
    assert (again.status, "The seat is still yours." in again.body.decode()) == (402, False)


async def test_invalid_requests_are_refused(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)
    place = f"/api/schedules/{sale}/reservations"

    replies = [
        await ada.ask("POST", place, data=b"{"),
        await ada.ask("POST", place, json={"seat": "A1", "price": 0}),
        await ada.ask("POST", place, data=b" " * 5000),
        await client.get("/api/concerts/ranking?period=yearly"),
        await ada.ask("POST", f"/schedules/{sale}/reservations", data=b"a=1&" * 20),
        await client.get("/api/concerts/ranking?limit=many"),
        await client.get("/api/concerts/ranking?limit=0"),
        await client.get(f"/api/concerts/ranking?limit={'9' * 5000}"),
    ]

    assert [reply.status for reply in replies] == [400] * 8


async def test_the_ranking_lists_concerts_in_order_without_numbers(harness: TicketingHarness, client: Client):
    await harness.declare()
    sale = await harness.sale()
    await harness.enter(sale, "ada")
    await harness.buy(sale, "A1", "ada")
    await harness.relay()

    reply = await client.get("/api/concerts/ranking?period=weekly&limit=10")

    assert reply.json == {
        "period": "weekly",
        "concerts": [{"id": 1, "title": "Night Ferry", "artist": "Night Ferry Band", "venue": "Harbour Hall"}],
        "degraded": False,
    }


async def test_activity_prolongs_the_session(harness: TicketingHarness, client: Client):
    sale = await harness.sale(room=RoomPlan(capacity=5, session=timedelta(minutes=10)))
    ada = await enter(harness, client, sale)
    for _ in range(2):
        harness.clock.advance(timedelta(minutes=8))
        assert (await ada.ask("GET", f"/api/schedules/{sale}/seats")).status == 200
    harness.clock.advance(timedelta(minutes=11))

    assert (await ada.ask("GET", f"/api/schedules/{sale}/seats")).status == 403


async def test_leaving_ends_the_session(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    ada = await enter(harness, client, sale)

    left = await ada.ask("DELETE", f"/api/schedules/{sale}/session")

    assert left.status == 204
    assert (await Buyer(client, "made.up").ask("DELETE", f"/api/schedules/{sale}/session")).status == 204
    assert (await Buyer(client, None).ask("DELETE", f"/api/schedules/{sale}/session")).status == 204
    assert (await ada.ask("GET", f"/api/schedules/{sale}/seats")).status == 403


async def test_the_purchase_works_with_pages_and_forms_alone(harness: TicketingHarness, client: Client):
    sale = await harness.sale()
    [pass_] = await harness.enter(sale, "ada")
    cookie = {"Cookie": f"{COOKIE.format(room=f'schedule-{sale}')}={pass_}"}

    async def post(path: str, **form: str) -> str:
        reply = await client.ask("POST", path, data=form, headers=cookie)
        assert reply.status == 303, reply
        return reply.headers["location"]

    seats = await client.get(f"/schedules/{sale}", headers=cookie)
    assert b'value="A2"' in seats.body
    checkout = await post(f"/schedules/{sale}/reservations", seat="A2")
    shown = await client.get(checkout, headers=cookie)
    key = shown.body.decode().split('name="key" value="')[1].split('"')[0]
    ticket = await post(f"{checkout}/payments", key=key, card="4242424242424242")
    assert await post(f"{checkout}/payments", key=key, card="4242424242424242") == ticket, "sent twice"
    page = (await client.get(ticket)).body.decode()  # also without the pass: the code is the right
    assert "Night Ferry" in page
    assert ">A2<" in page
    assert await post(f"/schedules/{sale}/leave") == "/"
    assert (await client.get(f"/schedules/{sale}", headers=cookie)).status == 303


async def test_user_input_is_escaped(harness: TicketingHarness, client: Client):
    await harness.sale(concert=await harness.concert("<script>alert(1)</script>"))

    page = (await client.get("/")).body.decode()

    assert "<script>" not in page
    assert "&lt;script&gt;" in page


async def test_a_sold_out_concert_has_no_buy_button_and_waiting_visitors_are_told(
    harness: TicketingHarness, client: Client
):
    sale = await harness.sale(seats=1, room=RoomPlan(capacity=0))
    await harness.enter(sale, "ada")
    room = await harness.shop.rooms.room(f"schedule-{sale}")
    waiting = await room.join("grace")
    await harness.buy(sale, "A1", "ada")
    [event] = await harness.events()

    await harness.shop.end_the_wait(event)
    await room.admitter.admit()

    grace = Buyer(client, (await room.join("grace", waiting.token)).token)
    seats = (await grace.ask("GET", f"/schedules/{sale}")).body.decode()
    home = (await client.get("/")).body.decode()
    assert "This evening is sold out" in seats
    assert "Sold out" in home
    assert f'href="/schedules/{sale}"' not in home


async def test_the_waiting_page_is_served_and_operator_routes_are_not(harness: TicketingHarness, client: Client):
    sale = await harness.sale()

    page = await client.get(f"/rooms/schedule-{sale}")
    operator = await client.ask("POST", f"/v1/rooms/schedule-{sale}/admissions", json={"users": ["me"]})
    status = await client.get(f"/v1/rooms/schedule-{sale}")

    assert (page.status, operator.status, status.status) == (200, 401, 401)
    assert "Night Ferry" in page.body.decode()


async def test_during_a_valkey_outage_admitted_users_buy_and_no_other_is_admitted(tmp_path: Path):
    server = ValkeyServer()
    async with connected(server.url) as valkey:
        url = await migrated_file(tmp_path / "shop.db")
        async with harness_at(url, valkey, ManualClock(), tmp_path) as harness, served(harness) as client:
            sale = await harness.sale()
            ada = await enter(harness, client, sale)
            server.stop()

            held = await ada.reserve(sale, "A1")
            paid = await ada.pay(held.json["id"])
            unknown_caller = await Buyer(client, None).reserve(sale, "A2")
            joined = await client.ask("POST", f"/rooms/schedule-{sale}", data={"do": "join"})
            home = await client.get("/")
            ranking = await client.get("/api/concerts/ranking")

    assert (held.status, paid.status, paid.json["state"]) == (201, 201, "completed")
    assert (unknown_caller.status, joined.status) == (403, 503)
    assert (home.status, "cannot be shown just now" in home.body.decode()) == (200, True)
    assert (ranking.status, ranking.json["concerts"], ranking.json["degraded"]) == (200, [], True)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/reservations/none", "There is no such reservation."),
        ("/tickets/none", "There is no such ticket."),
        ("/schedules/99", "There is no such evening."),
        (f"/schedules/{'9' * 30}", "There is no such evening."),
        ("/schedules/abc", "There is no such page."),
        ("/nothing", "There is no such page."),
        ("/api/reservations/none", "there is no such reservation"),
        ("/api/schedules/99/seats", "there is no such evening"),
        ("/api/nothing", "there is no such page"),
    ],
)
async def test_unknown_pages_are_not_found(harness: TicketingHarness, client: Client, path: str, words: str):
    reply = await client.get(path)

    shown = reply.json["detail"] if path.startswith("/api/") else reply.body.decode()
    assert reply.status == 404
    assert words in shown
    assert path.startswith("/api/") or "Harbour Tickets" in shown


async def test_the_form_action_leads_back_to_its_page(harness: TicketingHarness, client: Client):
    places = {
        "/reservations/some%3Fid/payments": "/reservations/some%3Fid",
        "/reservations/one/release": "/reservations/one",
        "/schedules/7/reservations": "/schedules/7",
        "/schedules/7/leave": "/schedules/7",
    }
    for form, page in places.items():
        reply = await client.get(form)
        assert (reply.status, reply.headers["location"]) == (303, page)
    assert (await client.ask("PUT", "/reservations/one/payments")).status == 405


@pytest.mark.every_server
async def test_a_nul_character_is_handled_on_every_database(harness_on_each_server: TicketingHarness):
    sale = await harness_on_each_server.sale()
    async with served(harness_on_each_server) as client:
        ada = await enter(harness_on_each_server, client, sale)
        held = (await ada.reserve(sale, "A1")).json["id"]
        replies = [
            await ada.reserve(sale, "A\0"),
            await ada.ask("POST", f"/schedules/{sale}/reservations", data="seat=A%001"),
            await ada.ask("GET", f"/api/reservations/{held}%00"),
            await ada.ask("GET", f"/reservations/{held}%00"),
            await ada.ask("GET", "/tickets/a%00b"),
            await ada.ask("POST", f"/reservations/{held}/payments", data=f"card={Card.GOOD}&key=a%00b"),
        ]

    assert [reply.status for reply in replies] == [404, 404, 404, 404, 404, 400]


async def test_held_seats_are_not_shown_as_free(harness: TicketingHarness, client: Client):
    sale = await harness.sale(seats=2)
    ada, bob = await enter(harness, client, sale), await enter(harness, client, sale, "bob")

    async def told() -> tuple[bool, bool, str]:
        home = (await client.get("/")).body.decode()
        [evening] = (await client.get("/api/schedules")).json["schedules"]
        counts = f"{evening['seats_free']} {evening['seats_left']}"
        return "1 free" in home, "none free at this moment, 1 is held" in home, counts

    await ada.reserve(sale, "A1")
    assert await told() == (True, False, "1 2")
    await harness.buy(sale, "A2", "bob")
    assert await told() == (False, True, "0 1")
    seats = (await bob.ask("GET", f"/schedules/{sale}")).body.decode()
    assert "No seat is free at this moment, 1 is held." in seats
    harness.clock.advance(harness.shop.plan.hold_for)  # and no keeper has written it down
    assert await told() == (True, False, "1 1")


async def test_pages_show_remaining_times(harness: TicketingHarness, client: Client):
    sale = await harness.sale(room=RoomPlan(capacity=5, session=timedelta(minutes=20)))
    ada = await enter(harness, client, sale)
    held = await harness.reserve(sale, "A1", "ada")
    harness.clock.advance(timedelta(seconds=75))

    seats = (await ada.ask("GET", f"/schedules/{sale}")).body.decode()
    checkout = (await ada.ask("GET", f"/reservations/{held.id}")).body.decode()

    ends = {name: (held.held_until + more).astimezone(BOARD.zone) for name, more in ENDS.items()}
    assert f"Your visit lasts until {ends['visit']:%H:%M:%S}" in seats
    assert "It is held for you for 10 minutes." in seats
    assert f"another <strong>8 minutes and 45 seconds</strong>, until {ends['hold']:%H:%M:%S}" in checkout


async def test_the_seats_show_held_and_bought_ones_and_the_limit_of_four(harness: TicketingHarness, client: Client):
    sale = await harness.sale(seats=6)
    ada = await enter(harness, client, sale)
    await harness.buy(sale, "A1", "ada")
    for seat in ("A2", "A3"):
        await harness.reserve(sale, seat, "ada")
    before = (await ada.ask("GET", f"/schedules/{sale}")).body.decode()
    await harness.reserve(sale, "A4", "ada")
    after = (await ada.ask("GET", f"/schedules/{sale}")).body.decode()

    assert ("Seat A1, your ticket" in after, "Seat A2, held for you" in after) == (True, True)
    assert ("Choose a seat" in before, "one person gets no more" in before) == (True, False)
    assert ("Choose a seat" in after, "one person gets no more" in after) == (False, True)
    assert 'class="seat" disabled name="seat" value="A5"' in after


@pytest.mark.parametrize(("seats", "in_front"), [(20, 20), (60, 20), (90, 40), (120, 40), (480, 60)])
async def test_a_share_of_the_seats_is_in_front(harness: TicketingHarness, seats: int, in_front: int):
    sale = await harness.sale(seats=seats)

    found = await harness.database.read(catalogue.seat_map, sale, "nobody")

    assert sum(seat.price == 200 for seat in found) == in_front
