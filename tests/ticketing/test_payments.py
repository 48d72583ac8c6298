"""Paying: once, whatever the bank does, and told to whoever wants to hear of it."""

from datetime import timedelta

import pytest
from examples.ticketing import payments
from examples.ticketing.bank import BankAway, Card, FakeBank, Outcome, charges
from examples.ticketing.cashier import Cashier
from examples.ticketing.keepers import PaymentKeeper
from examples.ticketing.payments import KeyReused, PaymentState
from examples.ticketing.reservations import HoldOver, Reservation

from tests.ticketing.stall import Stall
from tidegate.core.errors import NotFound
from tidegate.storage.sql import Database
from tidegate.systems.waiting_room import NotActive


async def held(stall: Stall, user: str = "ada", seats: int = 3) -> Reservation:
    sale = await stall.sale(seats=seats)
    await stall.enter(sale, user)
    return await stall.reserve(sale, "A1", user)


async def test_a_payment_gives_a_ticket_and_the_seat_is_sold(stall: Stall):
    mine = await held(stall)

    payment = await stall.pay(mine)

    assert (payment.state, await stall.state(mine)) == (PaymentState.COMPLETED, "paid")
    assert payment.ticket is not None
    ticket = await stall.database.read(payments.ticket, payment.ticket)
    assert ticket.reservation.seat == "A1"


async def test_a_payment_and_its_event_are_one_transaction(stall: Stall):
    mine = await held(stall)

    payment = await stall.pay(mine)

    [event] = await stall.events()
    assert (event.kind, event.event_id) == ("PaymentCompleted", payment.id)
    assert event.payload == {
        "payment": payment.id,
        "concert": 1,
        "schedule": mine.schedule,
        "user": "ada",
        "paid_at": stall.clock.now().isoformat(),
    }


async def test_the_same_key_returns_the_same_payment(stall: Stall):
    mine = await held(stall)

    first = await stall.pay(mine, "key")
    again = await stall.pay(mine, "key", Card.POOR)

    assert first == again
    assert len(await stall.events()) == 1
    assert len(await stall.rows(charges)) == 1


async def test_the_answer_of_a_key_is_returned_after_the_session_ended(stall: Stall):
    mine = await held(stall)
    first = await stall.pay(mine, "key")
    stall.clock.advance(timedelta(hours=5))

    assert await stall.pay(mine, "key") == first


async def test_a_key_cannot_be_used_for_another_payment(stall: Stall):
    mine = await held(stall)
    await stall.pay(mine, "key")
    other = await stall.reserve(mine.schedule, "A2", "ada")

    with pytest.raises(KeyReused):
        await stall.pay(other, "key")


async def test_two_users_may_use_the_same_key(stall: Stall):
    mine = await held(stall)
    await stall.enter(mine.schedule, "bob")
    his = await stall.reserve(mine.schedule, "A2", "bob")

    assert (await stall.pay(mine, "key")).id != (await stall.pay(his, "key")).id


async def test_a_seat_is_not_paid_twice_with_two_keys(stall: Stall):
    mine = await held(stall)
    await stall.pay(mine, "one")

    with pytest.raises(HoldOver):
        await stall.pay(mine, "two")


async def test_a_declined_card_leaves_the_seat_held(stall: Stall):
    mine = await held(stall)

    payment = await stall.pay(mine, "one", Card.POOR)

    assert (payment.state, await stall.state(mine)) == (PaymentState.DECLINED, "held")
    assert await stall.events() == []
    assert (await stall.pay(mine, "two")).state is PaymentState.COMPLETED


async def test_an_expired_hold_cannot_be_paid(stall: Stall):
    mine = await held(stall)
    stall.clock.advance(timedelta(minutes=10))

    with pytest.raises(HoldOver):
        await stall.pay(mine)


async def test_a_user_whose_session_ended_cannot_pay(stall: Stall):
    mine = await held(stall)
    [pass_] = await stall.enter(mine.schedule, "ada")
    room = await stall.shop.rooms.room(f"schedule-{mine.schedule}")
    await room.leave(pass_)

    with pytest.raises(NotActive):
        await stall.pay(mine)
    assert await stall.rows(charges) == []


async def test_a_user_cannot_pay_for_the_seat_of_another(stall: Stall):
    mine = await held(stall)
    await stall.enter(mine.schedule, "bob")

    with pytest.raises(NotFound):
        await stall.shop.cashier.pay(mine.id, "bob", "key", Card.GOOD)


@pytest.mark.parametrize("card", [Card.MUTE, Card.SLOW])
async def test_while_the_bank_does_not_answer_the_seat_is_kept(stall: Stall, card: Card):
    mine = await held(stall)
    await stall.enter(mine.schedule, "bob")

    payment = await stall.pay(mine, card=card)
    stall.clock.advance(timedelta(minutes=20))  # longer than any hold

    assert (payment.state, await stall.state(mine)) == (PaymentState.CHARGING, "paying")
    assert (await stall.seats(mine.schedule, "bob"))["A1"] == "taken"


async def test_a_charge_whose_answer_was_lost_is_found_and_the_seat_is_sold(stall: Stall):
    mine = await held(stall)
    payment = await stall.pay(mine, card=Card.MUTE)

    stall.clock.advance(stall.shop.plan.settle_after - timedelta(milliseconds=1))
    _, next_in_ms = await stall.keep()
    assert (next_in_ms, await stall.payment_state(payment)) == (1, "charging")

    stall.clock.advance(timedelta(milliseconds=1))
    await stall.keep()

    assert (await stall.payment_state(payment), await stall.state(mine)) == ("completed", "paid")
    assert len(await stall.events()) == 1


async def test_a_charge_that_was_never_made_is_cancelled_and_the_seat_is_free(stall: Stall):
    """The process died before it asked the bank; whoever asks later, in its name, is refused."""
    mine = await held(stall)
    payment = await stall.database.transaction(payments.begin, mine.id, "ada", "key", stall.shop.plan.settle_after)
    stall.clock.advance(timedelta(minutes=10))
    await stall.shop.cashier.settle(payment.id)

    assert (await stall.payment_state(payment), await stall.state(mine)) == ("declined", "expired")
    assert (await stall.seats(mine.schedule))["A1"] == "free"
    late = await stall.pay(mine, "key")  # the buyer's browser, which had given up on the dead process
    assert late.state is PaymentState.DECLINED
    assert [row["outcome"] for row in await stall.rows(charges)] == [Outcome.VOID]


async def test_repeating_a_payment_of_a_dead_process_completes_it(stall: Stall):
    mine = await held(stall)
    await stall.database.transaction(payments.begin, mine.id, "ada", "key", stall.shop.plan.settle_after)

    assert (await stall.pay(mine, "key")).state is PaymentState.COMPLETED
    assert len(await stall.rows(charges)) == 1


async def test_a_payment_settled_twice_is_published_once(stall: Stall):
    mine = await held(stall)
    payment = await stall.pay(mine, card=Card.MUTE)

    await stall.shop.cashier.settle(payment.id)
    await stall.shop.cashier.settle(payment.id)

    assert len(await stall.events()) == 1


async def test_a_declined_payment_returns_the_seat_with_its_remaining_time(stall: Stall):
    mine = await held(stall)
    stall.clock.advance(timedelta(minutes=9))
    await stall.pay(mine, card=Card.POOR)

    next_in_ms, _ = await stall.keep()

    assert (next_in_ms, await stall.state(mine)) == (60_000, "held")


async def test_the_keeper_plans_the_end_of_a_hold_that_is_being_paid(stall: Stall):
    """The bank may refuse, and then it is a mere hold again, which ends before any new one can."""
    mine = await held(stall)
    stall.clock.advance(timedelta(minutes=9))
    await stall.pay(mine, card=Card.MUTE)

    next_in_ms, _ = await stall.keep()

    assert next_in_ms == 60_000


async def test_a_bank_error_for_one_payment_delays_no_other(stall: Stall):
    mine, other = await held(stall), await held(stall)
    lost, found = [await stall.pay(each, each.id, Card.MUTE) for each in (mine, other)]
    stall.clock.advance(stall.shop.plan.settle_after)
    cashier = Cashier(
        stall.database, HalfDeaf(stall.database, lost.id), charge_within=timedelta(), settle_after=timedelta()
    )

    with pytest.raises(BankAway):
        await PaymentKeeper(stall.database, cashier, stall.shop.plan.settle_after).fire()

    assert (await stall.payment_state(lost), await stall.payment_state(found)) == ("charging", "completed")


class HalfDeaf(FakeBank):
    """A bank that tells nothing of one payment."""

    def __init__(self, database: Database, of: str) -> None:
        super().__init__(database)
        self._of = of

    async def settle(self, payment_id: str) -> bool:
        if payment_id == self._of:
            raise BankAway("the line went dead")
        return await super().settle(payment_id)
