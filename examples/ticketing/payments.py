"""Paying for a seat. A payment is recorded before and after the call to the bank, so a crash in between loses nothing.

| it dies                    | what is there                        | who repairs                             |
| -------------------------- | ------------------------------------ | --------------------------------------- |
| before `begin` committed   | a hold                               | its time ends, or the buyer tries again |
| before the bank was asked  | a payment CHARGING, a seat PAYING    | the buyer, with the same key; or the    |
| after the bank charged     | the same, and the bank knows more    | keeper, who asks the bank what became   |
|                            |                                      | of it, and forbids what did not happen  |
| after `complete` committed | a seat PAID, its event in the outbox | the relay delivers the event            |

The functions work in the caller's transaction. None of them knows who is interested in a payment: that is what the
event is for.
"""

import secrets
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import uuid4

import msgspec
from examples.ticketing import reservations as holds
from examples.ticketing.reservations import HoldOver, Reservation, ReservationState, room_of
from examples.ticketing.tables import LONGEST_KEY, payments, reservations, schedules
from sqlalchemy import insert, select, update

from tidegate import Event, InvalidArgument, NotFound, TidegateError, Transaction, outbox
from tidegate.systems.waiting_room import require_active

PAYMENT_COMPLETED = "PaymentCompleted"
_p = payments.c


class PaymentState(StrEnum):
    """Where a payment is on its way."""

    CHARGING = "charging"  # the bank was asked, or is about to be
    COMPLETED = "completed"
    DECLINED = "declined"  # no money moved, and none will


MOVES: dict[PaymentState, set[PaymentState]] = {
    PaymentState.CHARGING: {PaymentState.COMPLETED, PaymentState.DECLINED},
    PaymentState.COMPLETED: set(),
    PaymentState.DECLINED: set(),
}


class KeyReused(TidegateError):
    """The idempotency key belongs to the payment of something else."""


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    """A payment."""

    id: str
    reservation: str
    user: str
    amount: int
    state: PaymentState
    ticket: str | None
    """The ticket code, once it is completed."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What was bought."""

    code: str
    reservation: Reservation
    paid_at: datetime


def begin(tx: Transaction, reservation_id: str, user: str, key: str, settle_after: timedelta) -> Payment:
    """Begin to pay for a held seat; the same key again is the same payment.

    Raises `NotActive`, `NotFound`, `HoldOver` or `KeyReused`.
    """
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise InvalidArgument("key", key[:LONGEST_KEY], f"must have 1 to {LONGEST_KEY} printable characters")
    if known := _known(tx, reservation_id, user, key):
        return known
    reservation = holds.get(tx, reservation_id, user)
    require_active(tx, room_of(reservation.schedule), user)  # locks the session until the commit
    if known := _known(tx, reservation_id, user, key):
        return known
    if not holds.move(tx, reservation_id, ReservationState.PAYING, reservations.c.held_until > tx.now):
        raise HoldOver(f"reservation {reservation_id} is {_words(tx, reservation)}")
    payment_id = str(uuid4())
    row = {
        "id": payment_id,
        "reservation_id": reservation_id,
        "paying_for": reservation_id,
        "user_id": user,
        "idempotency_key": key,
        "amount": reservation.price,
        "state": PaymentState.CHARGING,
        "settle_at": tx.now + settle_after,
    }
    tx.execute(insert(payments), row)
    return get(tx, payment_id)


def complete(tx: Transaction, payment_id: str) -> Payment:
    """Record the charge: the seat is sold, and an event is added to the outbox. Safe to repeat."""
    ticket = secrets.token_urlsafe(16)
    if _move(tx, payment_id, PaymentState.COMPLETED, completed_at=tx.now, ticket=ticket):
        payment = get(tx, payment_id)
        if not holds.move(tx, payment.reservation, ReservationState.PAID):
            raise RuntimeError(f"payment {payment_id} was charged for a seat that was given up")
        outbox.add(tx, _completed(tx, payment))
    return get(tx, payment_id)


def decline(tx: Transaction, payment_id: str) -> Payment:
    """The bank has not charged, and never will for this payment: the seat is held as before, or its time is over."""
    if _move(tx, payment_id, PaymentState.DECLINED, paying_for=None):
        payment = get(tx, payment_id)
        in_time = reservations.c.held_until > tx.now
        if not holds.move(tx, payment.reservation, ReservationState.HELD, in_time):
            holds.move(tx, payment.reservation, ReservationState.EXPIRED)
    return get(tx, payment_id)


def get(tx: Transaction, payment_id: str) -> Payment:
    """A payment; raise `NotFound`."""
    row = tx.execute(_PAYMENT.where(_p.id == payment_id)).one_or_none()
    if row is None:
        raise NotFound("payment", payment_id)
    return _payment(row)


def ticket(tx: Transaction, code: str) -> Ticket:
    """What was bought; raise `NotFound`."""
    found = select(_p.reservation_id, _p.completed_at).where(_p.ticket == code)
    row: Any = None if "\0" in code else tx.execute(found).one_or_none()  # at a NUL PostgreSQL would fail
    if row is None:
        raise NotFound("ticket", code)
    return Ticket(code=code, reservation=holds.get(tx, row.reservation_id), paid_at=row.completed_at)


def ticket_for(tx: Transaction, reservation_id: str) -> str:
    """The code of the ticket for a seat that is paid; raise `NotFound`."""
    code = tx.execute(select(_p.ticket).where(_p.paying_for == reservation_id)).scalar_one_or_none()
    if code is None:
        raise NotFound("ticket for reservation", reservation_id)
    return code


def unsettled(tx: Transaction, limit: int) -> list[str]:
    """Return payments that should be settled by now, oldest first."""
    overdue = select(_p.id).where(_p.state == PaymentState.CHARGING, _p.settle_at <= tx.now)
    return list(tx.execute(overdue.order_by(_p.settle_at).limit(limit)).scalars())


def next_settling(tx: Transaction) -> datetime | None:
    """When the next of them is to be settled."""
    return tx.execute(
        select(_p.settle_at).where(_p.state == PaymentState.CHARGING).order_by(_p.settle_at).limit(1)
    ).scalar_one_or_none()


_PAYMENT = select(_p.id, _p.reservation_id, _p.user_id, _p.amount, _p.state, _p.ticket)


def _known(tx: Transaction, reservation_id: str, user: str, key: str) -> Payment | None:
    row = tx.execute(_PAYMENT.where(_p.user_id == user, _p.idempotency_key == key)).one_or_none()
    if row is None:
        return None
    known = _payment(row)
    if known.reservation != reservation_id:
        raise KeyReused("this idempotency key was used to pay for something else")
    return known


def _move(tx: Transaction, payment_id: str, target: PaymentState, **values: Any) -> bool:
    allowed = [_p.id == payment_id, _p.state.in_([state for state, targets in MOVES.items() if target in targets])]
    return tx.execute(update(payments).where(*allowed).values(state=target, **values)).rowcount == 1


def _completed(tx: Transaction, payment: Payment) -> Event:
    reservation = holds.get(tx, payment.reservation)
    concert = tx.execute(select(schedules.c.concert_id).where(schedules.c.id == reservation.schedule)).scalar_one()
    told = {
        "payment": payment.id,
        "concert": concert,
        "schedule": reservation.schedule,
        "user": payment.user,
        "paid_at": tx.now.isoformat(),
    }
    return Event(PAYMENT_COMPLETED, key=payment.id, payload=told, event_id=payment.id)


def _words(tx: Transaction, reservation: Reservation) -> str:
    state = holds.get(tx, reservation.id).state
    return "over: its time has ended" if state is ReservationState.HELD else state.value


def _payment(row: Any) -> Payment:
    return Payment(
        id=row.id,
        reservation=row.reservation_id,
        user=row.user_id,
        amount=row.amount,
        state=PaymentState(row.state),
        ticket=row.ticket,
    )
