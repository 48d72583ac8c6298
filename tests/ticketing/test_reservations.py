"""Seats that are held: by whom, how many, and for how long."""

from datetime import timedelta

import pytest
from examples.ticketing import reservations
from examples.ticketing.reservations import HoldOver, SeatTaken, TooManySeats

from tests.ticketing.harness import TicketingHarness
from tidegate.core.errors import NotFound
from tidegate.systems.waiting_room import NotActive

TEN_MINUTES = timedelta(minutes=10)


async def test_a_held_seat_is_taken_for_all_others(harness: TicketingHarness):
    sale = await harness.sale()
    await harness.enter(sale, "ada", "bob")

    held = await harness.reserve(sale, "A1", "ada")

    assert held.held_until == harness.clock.now() + TEN_MINUTES
    assert (await harness.seats(sale, "ada"))["A1"] == "mine"
    assert (await harness.seats(sale, "bob"))["A1"] == "taken"
    with pytest.raises(SeatTaken):
        await harness.reserve(sale, "A1", "bob")


async def test_reserving_the_own_seat_again_returns_the_same_reservation(harness: TicketingHarness):
    sale = await harness.sale()
    await harness.enter(sale, "ada")

    assert await harness.reserve(sale, "A1", "ada") == await harness.reserve(sale, "A1", "ada")


async def test_a_user_without_a_session_cannot_reserve(harness: TicketingHarness):
    sale, other = await harness.sale(), await harness.sale()
    await harness.enter(other, "ada")

    with pytest.raises(NotActive):
        await harness.reserve(sale, "A1", "ada")
    assert (await harness.seats(sale))["A1"] == "free"


async def test_a_user_with_an_expired_session_cannot_reserve(harness: TicketingHarness):
    sale = await harness.sale()
    await harness.enter(sale, "ada")
    harness.clock.advance(timedelta(hours=3))

    with pytest.raises(NotActive):
        await harness.reserve(sale, "A1", "ada")


async def test_one_user_gets_at_most_four_seats(harness: TicketingHarness):
    sale = await harness.sale(seats=6)
    await harness.enter(sale, "ada")
    for number in range(1, 5):
        await harness.reserve(sale, f"A{number}", "ada")

    with pytest.raises(TooManySeats):
        await harness.reserve(sale, "A5", "ada")


async def test_an_unknown_seat_is_refused(harness: TicketingHarness):
    sale = await harness.sale()
    await harness.enter(sale, "ada")

    with pytest.raises(NotFound):
        await harness.reserve(sale, "Z9", "ada")


async def test_a_released_seat_is_free_immediately(harness: TicketingHarness):
    sale = await harness.sale()
    await harness.enter(sale, "ada", "bob")
    held = await harness.reserve(sale, "A1", "ada")

    await harness.database.transaction(reservations.release, held.id, "ada")
    await harness.database.transaction(reservations.release, held.id, "ada")  # twice is once

    assert (await harness.reserve(sale, "A1", "bob")).user == "bob"


async def test_a_user_cannot_release_the_seat_of_another(harness: TicketingHarness):
    sale = await harness.sale()
    await harness.enter(sale, "ada")
    held = await harness.reserve(sale, "A1", "ada")

    with pytest.raises(NotFound):
        await harness.database.transaction(reservations.release, held.id, "bob")


async def test_a_paid_seat_is_not_released(harness: TicketingHarness):
    sale = await harness.sale()
    await harness.enter(sale, "ada")
    held = await harness.reserve(sale, "A1", "ada")
    await harness.pay(held)

    with pytest.raises(HoldOver):
        await harness.database.transaction(reservations.release, held.id, "ada")


@pytest.mark.every_server
async def test_a_hold_expires_at_its_time_and_not_before(harness_on_each_server: TicketingHarness):
    sale = await harness_on_each_server.sale()
    await harness_on_each_server.enter(sale, "ada")
    held = await harness_on_each_server.reserve(sale, "A1", "ada")

    harness_on_each_server.clock.advance(TEN_MINUTES - timedelta(milliseconds=5))
    next_in_ms, _ = await harness_on_each_server.keep()
    assert (next_in_ms, await harness_on_each_server.state(held)) == (5, "held")

    harness_on_each_server.clock.advance(timedelta(milliseconds=5))
    await harness_on_each_server.keep()
    assert (await harness_on_each_server.state(held), (await harness_on_each_server.seats(sale))["A1"]) == (
        "expired",
        "free",
    )


async def test_an_expired_hold_does_not_block_the_seat_without_the_keeper(harness_on_each_server: TicketingHarness):
    """While there is no leader, nobody keeps the time; SQL decides all the same."""
    sale = await harness_on_each_server.sale()
    await harness_on_each_server.enter(sale, "ada", "bob")
    held = await harness_on_each_server.reserve(sale, "A1", "ada")

    harness_on_each_server.clock.advance(TEN_MINUTES)

    assert (await harness_on_each_server.seats(sale, "bob"))["A1"] == "free"
    assert (await harness_on_each_server.reserve(sale, "A1", "bob")).user == "bob"
    assert await harness_on_each_server.state(held) == "expired"


async def test_without_holds_the_keeper_sleeps_as_long_as_a_hold_lasts(harness: TicketingHarness):
    """One that is made in the next moment cannot end before that."""
    assert await harness.keep() == (600_000, 60_000)


@pytest.mark.full
async def test_many_holds_that_expire_together_are_all_ended(harness: TicketingHarness):
    sale = await harness.sale(seats=240)
    users = [f"user-{n}" for n in range(60)]
    await harness.enter(sale, *users)
    for n in range(240):
        await harness.reserve(sale, f"{chr(ord('A') + n // 20)}{n % 20 + 1}", users[n // 4])
    harness.clock.advance(TEN_MINUTES)

    await harness.keep()

    assert set((await harness.seats(sale)).values()) == {"free"}
