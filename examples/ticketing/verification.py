"""Verifies the shop: the sold seats, and whether the ranking equals a recount."""

from collections import Counter
from datetime import datetime

import msgspec
from examples.ticketing.payments import PaymentState
from examples.ticketing.reservations import ReservationState
from examples.ticketing.shop import BOARD, Shop
from examples.ticketing.tables import payments, reservations, schedules
from sqlalchemy import func, select

from tidegate import Transaction
from tidegate.systems.ranking import RankingPeriod, windows_at

_r, _p = reservations.c, payments.c
Ranked = dict[RankingPeriod, list[tuple[str, int]]]


class Sold(msgspec.Struct, frozen=True):
    """A completed payment."""

    payment: str
    concert: int
    schedule: int
    seat: int
    user: str
    reservation: str
    at: datetime
    reserved_at: datetime


async def ranked(shop: Shop) -> Ranked:
    """The ranking as it is shown, in all three windows."""
    found: Ranked = {}
    for period in RankingPeriod:
        top = await shop.ranking.top(BOARD.name, period, limit=1000)
        found[period] = [] if top.degraded else [(entry.member, entry.score) for entry in top.entries]
    return found


async def recount(shop: Shop) -> Ranked:
    """Compute the ranking from the completed payments; of equal scores, the one that was reached first is ahead."""
    sold = await shop.database.read(all_sold)
    now = shop.database.clock.now()
    found: Ranked = {}
    for window in windows_at(now, BOARD.zone):
        ours = [each for each in sold if window.starts_at <= each.at < window.ends_at]
        counts = Counter(str(each.concert) for each in ours)
        reached = {member: max(each.at for each in ours if str(each.concert) == member) for member in counts}
        found[window.period] = sorted(counts.items(), key=lambda each: (-each[1], reached[each[0]]))
    return found


def seats_sold_twice(sold: list[Sold]) -> list[int]:
    """There should be none."""
    return [seat for seat, times in Counter(each.seat for each in sold).items() if times > 1]


def all_sold(tx: Transaction) -> list[Sold]:
    """Every completed payment."""
    columns = select(
        _p.id, schedules.c.concert_id, _r.schedule_id, _r.seat_id, _p.user_id, _r.id, _p.completed_at, _r.reserved_at
    )
    joined = payments.join(reservations, _r.id == _p.reservation_id).join(schedules, schedules.c.id == _r.schedule_id)
    rows = tx.execute(columns.select_from(joined).where(_p.state == PaymentState.COMPLETED).order_by(_p.id))
    return [Sold(*row) for row in rows]


def count_sold(tx: Transaction) -> int:
    """How many seats are paid."""
    return tx.execute(select(func.count()).where(_r.state == ReservationState.PAID)).scalar_one()
