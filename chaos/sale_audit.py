"""What the rows of a sale and its ranking say of the rules."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import msgspec
from examples.ticketing.bank import Outcome, charges
from examples.ticketing.payments import PAYMENT_COMPLETED, PaymentState
from examples.ticketing.reservations import MOST_PER_USER, ReservationState, room_of
from examples.ticketing.shop import Shop
from examples.ticketing.tables import payments, reservations, seats
from examples.ticketing.verification import Ranked, Sold, all_sold, ranked, seats_sold_twice
from sqlalchemy import func, select

from tidegate.core.clock import to_ms
from tidegate.core.ids import new_id
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.systems.ranking.score_store import ranking_scores
from tidegate.systems.waiting_room.room_store import room_tokens

_AHEAD_MS = 10
_r, _p, _t = reservations.c, payments.c, room_tokens.c


class Outage(msgspec.Struct, kw_only=True):
    """A time without Valkey."""

    how: str
    began: datetime
    ended: datetime | None = None
    payments: int = 0
    admissions: int = 0


class Verdict(msgspec.Struct, kw_only=True):
    """The result; there must be no breaches."""

    people: int
    seats: int
    sold: int = 0
    refused: int = 0
    """Payments that the bank declined."""
    expired: int = 0
    """Holds whose time was over."""
    killed: int = 0
    """Instances of the shop."""
    outages: list[Outage] = []
    caught_up_s: float = 0
    """How long the ranking needed after the last payment."""
    took_s: float = 0
    breaches: list[str] = []

    @property
    def is_well(self) -> bool:
        """Whether every rule was kept."""
        return not self.breaches


async def audit(verdict: Verdict, shop: Shop) -> None:
    """Check every row."""
    sold = await shop.database.read(all_sold)
    verdict.sold = len(sold)
    tell = verdict.breaches.append
    if twice := seats_sold_twice(sold):
        tell(f"{len(twice)} seats were sold more than once: {twice[:5]}")
    if len(sold) != verdict.seats:
        tell(f"{len(sold)} of {verdict.seats} seats were sold")
    per_user = Counter((each.schedule, each.user) for each in sold)
    if greedy := [user for user, count in per_user.items() if count > MOST_PER_USER]:
        tell(f"{greedy[:5]} have more than {MOST_PER_USER} seats")
    for rule in (_of_states, _of_bank, _of_room):
        for breach in await shop.database.read(rule, sold):
            tell(breach)
    counted = await shop.database.read(_counts)
    verdict.refused, verdict.expired = counted


async def tell_again(shop: Shop) -> None:
    """Add the event of every payment once more."""
    await shop.database.transaction(_tell_again, await shop.database.read(all_sold))
    await shop.parts.commits.notify()


async def standings(shop: Shop) -> tuple[list[tuple[Any, ...]], Ranked]:
    """The ranking as SQL has it, and as it is shown."""
    return await shop.database.read(_scores), await ranked(shop)


def paid_since(tx: Transaction, began: datetime) -> int:
    """How many payments were completed since then."""
    return tx.execute(select(func.count()).where(_p.completed_at > began)).scalar_one()


def admitted_since(tx: Transaction, began: datetime) -> int:
    """The number of visitors taken from the line since then; admissions in progress may complete later.

    Admissions are numbered by the server's clock: a hundred for each millisecond, and a little ahead in a rush.
    """
    last = (to_ms(began) + _AHEAD_MS) * 100
    return tx.execute(select(func.count()).where(_t.admission > last)).scalar_one()


def seats_ever_held(tx: Transaction) -> int:
    """The number of reservations so far; it only grows."""
    return tx.execute(select(func.count()).select_from(reservations)).scalar_one()


def about_to_pay(tx: Transaction) -> int:
    """How many seats are held for a while yet."""
    held = _r.state == ReservationState.HELD
    return tx.execute(select(func.count()).where(held, _r.held_until > tx.now + timedelta(seconds=2))).scalar_one()


def _of_states(tx: Transaction, sold: list[Sold]) -> list[str]:
    paid = set(tx.execute(select(_r.id).where(_r.state == ReservationState.PAID)).scalars())
    breaches = [] if paid == {each.reservation for each in sold} else ["paid seats are not those of the payments"]
    claimed = tx.execute(select(_r.claimed_seat).where(_r.claimed_seat.is_not(None))).scalars().all()
    if len(claimed) != len(set(claimed)):
        breaches.append("a seat is claimed twice")
    return breaches


def _of_bank(tx: Transaction, sold: list[Sold]) -> list[str]:
    rows = tx.execute(select(charges.c.payment_id).where(charges.c.outcome == Outcome.CHARGED))
    charged, completed = set(rows.scalars()), {each.payment for each in sold}
    breaches: list[str] = []
    if unpaid := completed - charged:
        breaches.append(f"{len(unpaid)} tickets were given for nothing")
    if lost := charged - completed:
        breaches.append(f"{len(lost)} cards were charged for nothing")
    prices = select(func.count()).select_from(
        payments.join(reservations, _r.id == _p.reservation_id).join(seats, seats.c.id == _r.seat_id)
    )
    if wrong := tx.execute(prices.where(_p.amount != seats.c.price)).scalar_one():
        breaches.append(f"{wrong} payments were not of the seat's price")
    return breaches


def _of_room(tx: Transaction, sold: list[Sold]) -> list[str]:
    """Every buyer was admitted before the purchase."""
    admitted: dict[tuple[str, str], datetime] = {}
    for room, user, at in tx.execute(select(_t.room, _t.user_id, _t.admitted_at)):
        admitted[room, user] = min(at, admitted.get((room, user), at))
    outside = [
        each.user
        for each in sold
        if (first := admitted.get((room_of(each.schedule), each.user))) is None or first > each.reserved_at
    ]
    return [f"{len(outside)} buyers were not inside: {outside[:5]}"] if outside else []


def _counts(tx: Transaction) -> tuple[int, int]:
    declined = tx.execute(select(func.count()).where(_p.state == PaymentState.DECLINED)).scalar_one()
    return declined, tx.execute(select(func.count()).where(_r.state == ReservationState.EXPIRED)).scalar_one()


def _scores(tx: Transaction) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in tx.execute(select(ranking_scores).order_by(*ranking_scores.primary_key))]


def _tell_again(tx: Transaction, sold: list[Sold]) -> None:
    for each in sold:
        told = {
            "payment": each.payment,
            "concert": each.concert,
            "schedule": each.schedule,
            "user": each.user,
            "paid_at": each.at.isoformat(),
        }
        outbox.add(tx, Event(PAYMENT_COMPLETED, key=each.payment, payload=told, event_id=new_id()))
