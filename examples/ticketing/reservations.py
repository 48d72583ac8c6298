"""Seats that are held for a visitor, for a while or until they are paid.

A hold needs no timer to end: from `held_until` on no statement here respects it, and the keeper (see keepers.py) only
records the end. Every function works in the caller's transaction.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import uuid4

import msgspec
from examples.ticketing.tables import reservations, seats
from sqlalchemy import and_, func, or_, select, update

from tidegate import NotFound, TidegateError, Transaction
from tidegate.systems.waiting_room import require_active

MOST_PER_USER = 4
_AT_ONCE = 200
_r = reservations.c


class ReservationState(StrEnum):
    """Where a reservation is on its way."""

    HELD = "held"  # until `held_until`
    PAYING = "paying"  # a payment is under way: the seat waits for its end
    PAID = "paid"
    EXPIRED = "expired"  # the time was over
    RELEASED = "released"  # by the buyer's own will


MOVES: dict[ReservationState, set[ReservationState]] = {
    ReservationState.HELD: {ReservationState.PAYING, ReservationState.EXPIRED, ReservationState.RELEASED},
    ReservationState.PAYING: {ReservationState.PAID, ReservationState.HELD, ReservationState.EXPIRED},
    ReservationState.PAID: set(),
    ReservationState.EXPIRED: set(),
    ReservationState.RELEASED: set(),
}
CLAIMING = (ReservationState.HELD, ReservationState.PAYING, ReservationState.PAID)
"""In these states a reservation claims its seat."""


class SeatTaken(TidegateError):
    """Another visitor holds or owns the seat."""

    def __init__(self, label: str) -> None:
        super().__init__(f"seat {label} is taken")
        self.label = label


class TooManySeats(TidegateError):
    """One person gets so many seats of an evening, and no more."""


class HoldOver(TidegateError):
    """The reservation cannot be paid or given back: its time is over, or it is paid already."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A seat that is held or owned by a visitor."""

    id: str
    schedule: int
    seat: str
    price: int
    user: str
    state: ReservationState
    held_until: datetime


def room_of(schedule_id: int) -> str:
    """The name of the waiting room before an evening's seats."""
    return f"schedule-{schedule_id}"


def reserve(tx: Transaction, schedule_id: int, label: str, user: str, hold_for: timedelta) -> Reservation:
    """Hold a seat for a visitor inside; a repeated call returns the same hold.

    Raises `NotActive`, `NotFound`, `TooManySeats` or `SeatTaken`.
    """
    require_active(tx, room_of(schedule_id), user)  # locks the session until the commit
    seat_id = _seat_id(tx, schedule_id, label)
    _expire(tx, _r.claimed_seat == seat_id)
    claimed = _claimed_by(tx, schedule_id, user)
    if seat_id in claimed:
        return get(tx, claimed[seat_id], user)
    if len(claimed) >= MOST_PER_USER:
        raise TooManySeats(f"one person gets at most {MOST_PER_USER} seats")
    reservation_id = str(uuid4())
    row = {
        "id": reservation_id,
        "schedule_id": schedule_id,
        "seat_id": seat_id,
        "claimed_seat": seat_id,
        "user_id": user,
        "state": ReservationState.HELD,
        "held_until": tx.now + hold_for,
        "reserved_at": tx.now,
    }
    if tx.execute(tx.insert_if_absent(reservations), row).rowcount != 1:
        raise SeatTaken(label)
    return get(tx, reservation_id, user)


def get(tx: Transaction, reservation_id: str, user: str | None = None) -> Reservation:
    """A reservation, of this user where one is named; raise `NotFound`."""
    if "\0" in reservation_id:  # at which PostgreSQL would fail
        raise NotFound("reservation", reservation_id)
    row: Any = tx.execute(_RESERVATION.where(_r.id == reservation_id)).one_or_none()
    if row is None or (user is not None and row.user_id != user):
        raise NotFound("reservation", reservation_id)
    return Reservation(
        id=row.id,
        schedule=row.schedule_id,
        seat=row.label,
        price=row.price,
        user=row.user_id,
        state=ReservationState(row.state),
        held_until=row.held_until,
    )


def release(tx: Transaction, reservation_id: str, user: str) -> None:
    """Give a seat back; raise `HoldOver` where it is not held any more."""
    reservation = get(tx, reservation_id, user)
    if reservation.state is not ReservationState.RELEASED and not move(tx, reservation_id, ReservationState.RELEASED):
        raise HoldOver(f"reservation {reservation_id} is {get(tx, reservation_id).state}")


def move(tx: Transaction, reservation_id: str, target: ReservationState, *conditions: Any) -> bool:
    """Bring a reservation to `target`; False where its state, or one of the conditions, does not allow it."""
    sources = [state for state, targets in MOVES.items() if target in targets]
    given_up = {} if target in CLAIMING else {"claimed_seat": None}
    allowed = [_r.id == reservation_id, _r.state.in_(sources), *conditions]
    return tx.execute(update(reservations).where(*allowed).values(state=target, **given_up)).rowcount == 1


def expire_some(tx: Transaction) -> int:
    """End some of the expired holds; return how many."""
    due = select(_r.id).where(_r.state == ReservationState.HELD, _r.held_until <= tx.now)
    ids = tx.execute(due.order_by(_r.held_until).limit(_AT_ONCE)).scalars().all()
    return _expire(tx, _r.id.in_(sorted(ids))) if ids else 0


def next_end(tx: Transaction) -> datetime | None:
    """When the next hold ends; None where there is none. A seat that is being paid for may soon be held again."""
    paying = and_(_r.state == ReservationState.PAYING, _r.held_until > tx.now)
    ending = or_(_r.state == ReservationState.HELD, paying)
    return tx.execute(select(func.min(_r.held_until)).where(ending)).scalar_one()


_RESERVATION = select(
    _r.id, _r.schedule_id, seats.c.label, seats.c.price, _r.user_id, _r.state, _r.held_until
).join_from(reservations, seats, seats.c.id == _r.seat_id)


def _seat_id(tx: Transaction, schedule_id: int, label: str) -> int:
    found = select(seats.c.id).where(seats.c.schedule_id == schedule_id, seats.c.label == label)
    # At a NUL PostgreSQL would fail; no seat has one.
    seat_id = None if "\0" in label else tx.execute(found).scalar_one_or_none()
    if seat_id is None:
        raise NotFound("seat", label)
    return seat_id


def _claimed_by(tx: Transaction, schedule_id: int, user: str) -> dict[int, str]:
    """Return the seats of a visitor with their reservations, without expired holds."""
    live = or_(_r.state != ReservationState.HELD, _r.held_until > tx.now)
    ours = [_r.schedule_id == schedule_id, _r.user_id == user, _r.claimed_seat.is_not(None), live]
    return {row[0]: row[1] for row in tx.execute(select(_r.claimed_seat, _r.id).where(*ours))}


def _expire(tx: Transaction, those: Any) -> int:
    """Conditions are checked at the moment of the change, so a seat that is being paid is kept."""
    over = [those, _r.state == ReservationState.HELD, _r.held_until <= tx.now]
    expired = {"state": ReservationState.EXPIRED, "claimed_seat": None}
    return tx.execute(update(reservations).where(*over).values(expired)).rowcount
