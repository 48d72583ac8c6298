"""Seats that are held: by whom, how many, and for how long."""

from datetime import timedelta

import pytest
from examples.ticketing import reservations
from examples.ticketing.reservations import HoldOver, SeatTaken, TooManySeats

from tests.ticketing.stall import Stall
from tidegate.core.errors import NotFound
from tidegate.systems.waiting_room import NotActive

TEN_MINUTES = timedelta(minutes=10)


async def test_a_held_seat_is_taken_for_all_others(stall: Stall):
    sale = await stall.sale()
    await stall.enter(sale, "ada", "bob")

    held = await stall.reserve(sale, "A1", "ada")

    assert held.held_until == stall.clock.now() + TEN_MINUTES
    assert (await stall.seats(sale, "ada"))["A1"] == "mine"
    assert (await stall.seats(sale, "bob"))["A1"] == "taken"
    with pytest.raises(SeatTaken):
        await stall.reserve(sale, "A1", "bob")


async def test_reserving_the_own_seat_again_returns_the_same_reservation(stall: Stall):
    sale = await stall.sale()
    await stall.enter(sale, "ada")

    assert await stall.reserve(sale, "A1", "ada") == await stall.reserve(sale, "A1", "ada")


async def test_a_user_without_a_session_cannot_reserve(stall: Stall):
    sale, other = await stall.sale(), await stall.sale()
    await stall.enter(other, "ada")

    with pytest.raises(NotActive):
        await stall.reserve(sale, "A1", "ada")
    assert (await stall.seats(sale))["A1"] == "free"


async def test_a_user_with_an_expired_session_cannot_reserve(stall: Stall):
    sale = await stall.sale()
    await stall.enter(sale, "ada")
    stall.clock.advance(timedelta(hours=3))

    with pytest.raises(NotActive):
        await stall.reserve(sale, "A1", "ada")


async def test_one_user_gets_at_most_four_seats(stall: Stall):
    sale = await stall.sale(seats=6)
    await stall.enter(sale, "ada")
    for number in range(1, 5):
        await stall.reserve(sale, f"A{number}", "ada")

    with pytest.raises(TooManySeats):
        await stall.reserve(sale, "A5", "ada")


async def test_an_unknown_seat_is_refused(stall: Stall):
    sale = await stall.sale()
    await stall.enter(sale, "ada")

    with pytest.raises(NotFound):
        await stall.reserve(sale, "Z9", "ada")


async def test_a_released_seat_is_free_immediately(stall: Stall):
    sale = await stall.sale()
    await stall.enter(sale, "ada", "bob")
    held = await stall.reserve(sale, "A1", "ada")

    await stall.database.transaction(reservations.release, held.id, "ada")
    await stall.database.transaction(reservations.release, held.id, "ada")  # twice is once

    assert (await stall.reserve(sale, "A1", "bob")).user == "bob"


async def test_a_user_cannot_release_the_seat_of_another(stall: Stall):
    sale = await stall.sale()
    await stall.enter(sale, "ada")
    held = await stall.reserve(sale, "A1", "ada")

    with pytest.raises(NotFound):
        await stall.database.transaction(reservations.release, held.id, "bob")


async def test_a_paid_seat_is_not_released(stall: Stall):
    sale = await stall.sale()
    await stall.enter(sale, "ada")
    held = await stall.reserve(sale, "A1", "ada")
    await stall.pay(held)

    with pytest.raises(HoldOver):
        await stall.database.transaction(reservations.release, held.id, "ada")


@pytest.mark.every_server
async def test_a_hold_expires_at_its_time_and_not_before(anywhere: Stall):
    sale = await anywhere.sale()
    await anywhere.enter(sale, "ada")
    held = await anywhere.reserve(sale, "A1", "ada")

    anywhere.clock.advance(TEN_MINUTES - timedelta(milliseconds=5))
    next_in_ms, _ = await anywhere.keep()
    assert (next_in_ms, await anywhere.state(held)) == (5, "held")

    anywhere.clock.advance(timedelta(milliseconds=5))
    await anywhere.keep()
    assert (await anywhere.state(held), (await anywhere.seats(sale))["A1"]) == ("expired", "free")


async def test_an_expired_hold_does_not_block_the_seat_without_the_keeper(anywhere: Stall):
    """While there is no leader, nobody keeps the time; SQL decides all the same."""
    sale = await anywhere.sale()
    await anywhere.enter(sale, "ada", "bob")
    held = await anywhere.reserve(sale, "A1", "ada")

    anywhere.clock.advance(TEN_MINUTES)

    assert (await anywhere.seats(sale, "bob"))["A1"] == "free"
    assert (await anywhere.reserve(sale, "A1", "bob")).user == "bob"
    assert await anywhere.state(held) == "expired"


async def test_without_holds_the_keeper_sleeps_as_long_as_a_hold_lasts(stall: Stall):
    """One that is made in the next moment cannot end before that."""
    assert await stall.keep() == (600_000, 60_000)


@pytest.mark.full
async def test_many_holds_that_expire_together_are_all_ended(stall: Stall):
    sale = await stall.sale(seats=240)
    users = [f"user-{n}" for n in range(60)]
    await stall.enter(sale, *users)
    for n in range(240):
        await stall.reserve(sale, f"{chr(ord('A') + n // 20)}{n % 20 + 1}", users[n // 4])
    stall.clock.advance(TEN_MINUTES)

    await stall.keep()

    assert set((await stall.seats(sale)).values()) == {"free"}
