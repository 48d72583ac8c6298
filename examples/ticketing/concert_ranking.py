"""The ranking of concerts, with the details of all concerts in one statement."""

import msgspec
from examples.ticketing import catalogue
from examples.ticketing.catalogue import Concert
from examples.ticketing.shop import BOARD, Shop

from tidegate import InvalidArgument
from tidegate.systems.ranking import RankingPeriod

MOST_SHOWN = 100


class ConcertRanking(msgspec.Struct, frozen=True, kw_only=True):
    """Concerts in the order of their completed payments; how many those were is not shown."""

    period: RankingPeriod
    concerts: list[Concert]
    degraded: bool
    """Whether the ranking is unavailable; it is then empty."""


async def popular_concerts(shop: Shop, period: RankingPeriod = RankingPeriod.DAILY, limit: int = 10) -> ConcertRanking:
    """The first `limit` concerts of today, this week or this month. Without Valkey there are none, and no error."""
    if not 1 <= limit <= MOST_SHOWN:
        raise InvalidArgument("limit", limit, f"must be from 1 to {MOST_SHOWN}")
    top = await shop.ranking.top(BOARD.name, period, limit=limit)
    ids = [int(entry.member) for entry in top.entries]
    found = await shop.database.read(catalogue.concerts_by_id, ids) if ids else {}
    return ConcertRanking(period=period, concerts=[found[each] for each in ids if each in found], degraded=top.degraded)
