"""Concerts, evenings and seats. Every function works in the caller's transaction."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from examples.ticketing.reservations import ReservationState
from examples.ticketing.tables import concerts, reservations, schedules, seats
from sqlalchemy import and_, case, func, insert, or_, select

from tidegate import InvalidArgument, NotFound, Transaction

SEATS_IN_A_ROW = 20
MOST_SEATS = 26 * SEATS_IN_A_ROW


class Concert(msgspec.Struct, frozen=True, kw_only=True):
    """A concert."""

    id: int
    title: str
    artist: str
    venue: str


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """An evening of a concert."""

    id: int
    concert: Concert
    starts_at: datetime


class Availability(StrEnum):
    """State of a seat, as one visitor sees it."""

    FREE = "free"
    MINE = "mine"  # held, and not paid yet
    BOUGHT = "bought"  # by the same one
    TAKEN = "taken"


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """A seat, as one user sees it."""

    label: str
    price: int
    availability: Availability


class SeatCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How the seats of an evening stand."""

    free: int
    held: int
    """Seats that wait for a payment; they are free again if it does not come in time."""
    sold: int

    @property
    def left(self) -> int:
        """Seats that are not paid."""
        return self.free + self.held


def add_concert(tx: Transaction, title: str, artist: str, venue: str) -> int:
    """A new concert; returns its id."""
    row = {"title": title, "artist": artist, "venue": venue}
    return _new_id(tx.execute(insert(concerts).values(row)))


def add_schedule(tx: Transaction, concert: int, starts_at: datetime, seat_count: int, price: int) -> int:
    """A new evening with its seats, in rows from A on; returns its id. The front costs more: up to three rows."""
    for name, value in (("seat_count", seat_count), ("price", price)):
        if value <= 0:
            raise InvalidArgument(name, value, "must be positive")
    if seat_count > MOST_SEATS:
        raise InvalidArgument("seat_count", seat_count, f"the hall has {MOST_SEATS} seats")
    schedule = _new_id(tx.execute(insert(schedules).values(concert_id=concert, starts_at=starts_at)))
    in_front = SEATS_IN_A_ROW * min(3, math.ceil(seat_count / SEATS_IN_A_ROW / 3))
    rows = [
        {"schedule_id": schedule, "label": _label(n), "price": price * (2 if n < in_front else 1)}
        for n in range(seat_count)
    ]
    tx.insert_many(seats, rows)
    return schedule


def all_schedules(tx: Transaction) -> list[Schedule]:
    """Every evening, the earliest first."""
    return [_schedule(row) for row in tx.execute(_SCHEDULES.order_by(schedules.c.starts_at, schedules.c.id))]


def schedule(tx: Transaction, schedule_id: int) -> Schedule:
    """One evening; raise `NotFound`."""
    row = tx.execute(_SCHEDULES.where(schedules.c.id == schedule_id)).one_or_none()
    if row is None:
        raise NotFound("schedule", schedule_id)
    return _schedule(row)


def concerts_by_id(tx: Transaction, ids: Iterable[int]) -> dict[int, Concert]:
    """Those of these concerts that there are, in one statement."""
    rows = tx.execute(select(concerts).where(concerts.c.id.in_(sorted(set(ids)))))
    return {row.id: _concert(row) for row in rows}


def seat_map(tx: Transaction, schedule_id: int, user: str) -> list[Seat]:
    """All seats of an evening, in one statement. An expired hold does not block its seat."""
    at = reservations.c
    claims = seats.outerjoin(reservations, at.claimed_seat == seats.c.id)
    columns = select(seats.c.label, seats.c.price, at.user_id, at.state, at.held_until).select_from(claims)
    rows = tx.execute(columns.where(seats.c.schedule_id == schedule_id).order_by(seats.c.id))
    return [Seat(label=row[0], price=row[1], availability=_availability(*row[2:], user, tx.now)) for row in rows]


def seat_counts(tx: Transaction, schedule_ids: Sequence[int]) -> dict[int, SeatCounts]:
    """The number of seats in each state per evening, in one statement. Expired holds are not counted."""
    at = reservations.c
    live = or_(at.state != ReservationState.HELD, at.held_until > tx.now)
    sold = func.count(case((at.state == ReservationState.PAID, at.id)))
    counted = select(seats.c.schedule_id, func.count(seats.c.id), func.count(at.id), sold)
    rows = tx.execute(
        counted.select_from(seats.outerjoin(reservations, and_(at.claimed_seat == seats.c.id, live)))
        .where(seats.c.schedule_id.in_(schedule_ids))
        .group_by(seats.c.schedule_id)
    )
    found = {row[0]: SeatCounts(free=row[1] - row[2], held=row[2] - row[3], sold=row[3]) for row in rows}
    return dict.fromkeys(schedule_ids, SeatCounts(free=0, held=0, sold=0)) | found


_SCHEDULES = select(
    schedules.c.id.label("schedule_id"),
    schedules.c.starts_at,
    concerts.c.id,
    concerts.c.title,
    concerts.c.artist,
    concerts.c.venue,
).join_from(schedules, concerts, concerts.c.id == schedules.c.concert_id)


def _label(number: int) -> str:
    return f"{chr(ord('A') + number // SEATS_IN_A_ROW)}{number % SEATS_IN_A_ROW + 1}"


def _availability(
    owner: str | None, state: str | None, held_until: datetime | None, user: str, now: datetime
) -> Availability:
    if owner is None or (state == ReservationState.HELD and held_until is not None and held_until <= now):
        return Availability.FREE
    if owner != user:
        return Availability.TAKEN
    return Availability.BOUGHT if state == ReservationState.PAID else Availability.MINE


def _schedule(row: Any) -> Schedule:
    return Schedule(id=row.schedule_id, concert=_concert(row), starts_at=row.starts_at)


def _concert(row: Any) -> Concert:
    return Concert(id=row.id, title=row.title, artist=row.artist, venue=row.venue)


def _new_id(result: Any) -> int:
    return result.inserted_primary_key[0]
