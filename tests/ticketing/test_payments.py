"""Paying: once, whatever the bank does, and told to whoever wants to hear of it."""

from datetime import timedelta

import pytest
from examples.ticketing import payments
from examples.ticketing.bank import BankAway, Card, FakeBank, Outcome, charges
from examples.ticketing.due_sources import PaymentSettlement
from examples.ticketing.payment_service import PaymentService
from examples.ticketing.payments import KeyReused, PaymentState
from examples.ticketing.reservations import HoldOver, Reservation

from tests.ticketing.harness import TicketingHarness
from tidegate.core.errors import NotFound
from tidegate.storage.sql import Database
from tidegate.systems.waiting_room import NotActive


async def held(harness: TicketingHarness, user: str = "ada", seats: int = 3) -> Reservation:
    sale = await harness.sale(seats=seats)
    await harness.enter(sale, user)
    return await harness.reserve(sale, "A1", user)


async def test_a_payment_gives_a_ticket_and_the_seat_is_sold(harness: TicketingHarness):
    mine = await held(harness)

    payment = await harness.pay(mine)

    assert (payment.state, await harness.state(mine)) == (PaymentState.COMPLETED, "paid")
    assert payment.ticket is not None
    ticket = await harness.database.read(payments.ticket, payment.ticket)
    assert ticket.reservation.seat == "A1"


async def test_a_payment_and_its_event_are_one_transaction(harness: TicketingHarness):
    mine = await held(harness)

    payment = await harness.pay(mine)

    [event] = await harness.events()
    assert (event.kind, event.event_id) == ("PaymentCompleted", payment.id)
    assert event.payload == {
        "payment": payment.id,
        "concert": 1,
        "schedule": mine.schedule,
        "user": "ada",
        "paid_at": harness.clock.now().isoformat(),
    }


async def test_the_same_key_returns_the_same_payment(harness: TicketingHarness):
    mine = await held(harness)

    first = await harness.pay(mine, "key")
    again = await harness.pay(mine, "key", Card.POOR)

    assert first == again
    assert len(await harness.events()) == 1
    assert len(await harness.rows(charges)) == 1


async def test_the_answer_of_a_key_is_returned_after_the_session_ended(harness: TicketingHarness):
    mine = await held(harness)
    first = await harness.pay(mine, "key")
    harness.clock.advance(timedelta(hours=5))

    assert await harness.pay(mine, "key") == first


async def test_a_key_cannot_be_used_for_another_payment(harness: TicketingHarness):
    mine = await held(harness)
    await harness.pay(mine, "key")
    other = await harness.reserve(mine.schedule, "A2", "ada")

    with pytest.raises(KeyReused):
        await harness.pay(other, "key")


async def test_two_users_may_use_the_same_key(harness: TicketingHarness):
    mine = await held(harness)
    await harness.enter(mine.schedule, "bob")
    his = await harness.reserve(mine.schedule, "A2", "bob")

    assert (await harness.pay(mine, "key")).id != (await harness.pay(his, "key")).id


async def test_a_seat_is_not_paid_twice_with_two_keys(harness: TicketingHarness):
    mine = await held(harness)
    await harness.pay(mine, "one")

    with pytest.raises(HoldOver):
        await harness.pay(mine, "two")


async def test_a_declined_card_leaves_the_seat_held(harness: TicketingHarness):
    mine = await held(harness)

    payment = await harness.pay(mine, "one", Card.POOR)

    assert (payment.state, await harness.state(mine)) == (PaymentState.DECLINED, "held")
    assert await harness.events() == []
    assert (await harness.pay(mine, "two")).state is PaymentState.COMPLETED


async def test_an_expired_hold_cannot_be_paid(harness: TicketingHarness):
    mine = await held(harness)
    harness.clock.advance(timedelta(minutes=10))

    with pytest.raises(HoldOver):
        await harness.pay(mine)


async def test_a_user_whose_session_ended_cannot_pay(harness: TicketingHarness):
    mine = await held(harness)
    [pass_] = await harness.enter(mine.schedule, "ada")
    room = await harness.shop.rooms.room(f"schedule-{mine.schedule}")
    await room.leave(pass_)

    with pytest.raises(NotActive):
        await harness.pay(mine)
    assert await harness.rows(charges) == []


async def test_a_user_cannot_pay_for_the_seat_of_another(harness: TicketingHarness):
    mine = await held(harness)
    await harness.enter(mine.schedule, "bob")

    with pytest.raises(NotFound):
        await harness.shop.payment_service.pay(mine.id, "bob", "key", Card.GOOD)


@pytest.mark.parametrize("card", [Card.MUTE, Card.SLOW])
async def test_while_the_bank_does_not_answer_the_seat_is_kept(harness: TicketingHarness, card: Card):
    mine = await held(harness)
    await harness.enter(mine.schedule, "bob")

    payment = await harness.pay(mine, card=card)
    harness.clock.advance(timedelta(minutes=20))  # longer than any hold

    assert (payment.state, await harness.state(mine)) == (PaymentState.CHARGING, "paying")
    assert (await harness.seats(mine.schedule, "bob"))["A1"] == "taken"


async def test_a_charge_whose_answer_was_lost_is_found_and_the_seat_is_sold(harness: TicketingHarness):
    mine = await held(harness)
    payment = await harness.pay(mine, card=Card.MUTE)

    harness.clock.advance(harness.shop.plan.settle_after - timedelta(milliseconds=1))
    _, next_in_ms = await harness.keep()
    assert (next_in_ms, await harness.payment_state(payment)) == (1, "charging")

    harness.clock.advance(timedelta(milliseconds=1))
    await harness.keep()

    assert (await harness.payment_state(payment), await harness.state(mine)) == ("completed", "paid")
    assert len(await harness.events()) == 1


async def test_a_charge_that_was_never_made_is_cancelled_and_the_seat_is_free(harness: TicketingHarness):
    """The process died before it asked the bank; whoever asks later, in its name, is refused."""
    mine = await held(harness)
    payment = await harness.database.transaction(payments.begin, mine.id, "ada", "key", harness.shop.plan.settle_after)
    harness.clock.advance(timedelta(minutes=10))
    await harness.shop.payment_service.settle(payment.id)

    assert (await harness.payment_state(payment), await harness.state(mine)) == ("declined", "expired")
    assert (await harness.seats(mine.schedule))["A1"] == "free"
    late = await harness.pay(mine, "key")  # the buyer's browser, which had given up on the dead process
    assert late.state is PaymentState.DECLINED
    assert [row["outcome"] for row in await harness.rows(charges)] == [Outcome.VOID]


async def test_repeating_a_payment_of_a_dead_process_completes_it(harness: TicketingHarness):
    mine = await held(harness)
    await harness.database.transaction(payments.begin, mine.id, "ada", "key", harness.shop.plan.settle_after)

    assert (await harness.pay(mine, "key")).state is PaymentState.COMPLETED
    assert len(await harness.rows(charges)) == 1


async def test_a_payment_settled_twice_is_published_once(harness: TicketingHarness):
    mine = await held(harness)
    payment = await harness.pay(mine, card=Card.MUTE)

    await harness.shop.payment_service.settle(payment.id)
    await harness.shop.payment_service.settle(payment.id)

    assert len(await harness.events()) == 1


async def test_a_declined_payment_returns_the_seat_with_its_remaining_time(harness: TicketingHarness):
    mine = await held(harness)
    harness.clock.advance(timedelta(minutes=9))
    await harness.pay(mine, card=Card.POOR)

    next_in_ms, _ = await harness.keep()

    assert (next_in_ms, await harness.state(mine)) == (60_000, "held")


async def test_the_keeper_plans_the_end_of_a_hold_that_is_being_paid(harness: TicketingHarness):
    """The bank may refuse, and then it is a mere hold again, which ends before any new one can."""
    mine = await held(harness)
    harness.clock.advance(timedelta(minutes=9))
    await harness.pay(mine, card=Card.MUTE)

    next_in_ms, _ = await harness.keep()

    assert next_in_ms == 60_000


async def test_a_bank_error_for_one_payment_delays_no_other(harness: TicketingHarness):
    mine, other = await held(harness), await held(harness)
    lost, found = [await harness.pay(each, each.id, Card.MUTE) for each in (mine, other)]
    harness.clock.advance(harness.shop.plan.settle_after)
    payment_service = PaymentService(
        harness.database, LostAnswerBank(harness.database, lost.id), charge_within=timedelta(), settle_after=timedelta()
    )

    with pytest.raises(BankAway):
        await PaymentSettlement(harness.database, payment_service, harness.shop.plan.settle_after).fire()

    assert (await harness.payment_state(lost), await harness.payment_state(found)) == ("charging", "completed")


class LostAnswerBank(FakeBank):
    """A bank that tells nothing of one payment."""

    def __init__(self, database: Database, of: str) -> None:
        super().__init__(database)
        self._of = of

    async def settle(self, payment_id: str) -> bool:
        if payment_id == self._of:
            raise BankAway("the line went dead")
        return await super().settle(payment_id)
