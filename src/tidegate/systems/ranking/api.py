"""`/v1/rankings`: who is ahead by day, week and month, and who is around whom."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.http.dispatch import Given
from tidegate.http.routes import route
from tidegate.systems.ranking.model import LARGEST_TOP, Window
from tidegate.systems.ranking.model import RankedMember as Entry
from tidegate.systems.ranking.model import RankingPeriod as Period
from tidegate.systems.ranking.service import MOST_NEIGHBOURS, Ranking
from tidegate.systems.ranking.settings import LONGEST_BOARD

TAG = "rankings"

BoardName = Annotated[str, Meta(min_length=1, max_length=LONGEST_BOARD)]
Member = Annotated[str, Meta(min_length=1)]
Day = date


class RankingQuery(Given, frozen=True, kw_only=True):
    """Of which window, and how much."""

    period: Period = Period.DAILY
    date: Day | None = None
    """A day of the window, by the calendar of the board; today, where it is left out."""
    limit: Annotated[int, Meta(ge=1, le=LARGEST_TOP)] = 10


class PlaceQuery(Given, frozen=True, kw_only=True):
    """Of which window, and how much around the member."""

    period: Period = Period.DAILY
    date: Day | None = None
    """A day of the window, by the calendar of the board; today, where it is left out."""
    neighbours: Annotated[int, Meta(ge=0, le=MOST_NEIGHBOURS)] = 2
    """So many before the member, and so many behind it."""


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A member in the order of a ranking."""

    rank: int
    """From 1; no two have the same: of equal scores, the one that was reached first is ahead."""
    member: str
    score: int


class InWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer says of its window."""

    board: str
    period: Period
    window: str
    """`2025-11-29`, `2025-W48` or `2025-11`."""
    starts_at: datetime
    ends_at: datetime
    kept_until: datetime
    """From then on the window is empty."""
    total: int
    """Members with a score in this window."""
    degraded: bool
    """Nobody can say at present, so the answer is empty: the server is away, or its copy is being made anew."""


class RankingPage(InWindow, frozen=True, kw_only=True):
    """The first members of a window."""

    members: list[Ranked]


class PlaceView(InWindow, frozen=True, kw_only=True):
    """Where a member is in a window."""

    member: str
    rank: int | None
    """Null where the member has no score in this window, or nobody can say."""
    score: int | None
    around: list[Ranked]
    """The member with those before and behind it, in order."""


class RankingRoutes:
    """Routes that read rankings."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be asked."""
        place = "/v1/rankings/{board}"
        return [
            route("GET", place, self.show_ranking, TAG, is_chatter=True),
            route("GET", f"{place}/members/{{member:path}}", self.show_ranked_member, TAG, is_chatter=True),
        ]

    async def show_ranking(self, board: BoardName, query: RankingQuery) -> RankingPage:
        """Tell who is ahead on a board, in a day, an ISO week or a month."""
        top = await self._ranking.top(board, query.period, on=query.date, limit=query.limit)
        return RankingPage(
            **_window(board, top.window), total=top.total, degraded=top.degraded, members=_ranked(top.entries)
        )

    async def show_ranked_member(self, board: BoardName, member: Member, query: PlaceQuery) -> PlaceView:
        """Tell where a member is on a board, and who is around it."""
        place = await self._ranking.around(board, member, query.period, on=query.date, neighbours=query.neighbours)
        return PlaceView(
            **_window(board, place.window),
            member=member,
            rank=place.rank,
            score=place.score,
            total=place.total,
            degraded=place.degraded,
            around=_ranked(place.around),
        )


def _window(board: str, window: Window) -> dict[str, Any]:
    return {
        "board": board,
        "period": window.period,
        "window": window.name,
        "starts_at": window.starts_at,
        "ends_at": window.ends_at,
        "kept_until": window.kept_until,
    }


def _ranked(entries: Sequence[Entry]) -> list[Ranked]:
    return [Ranked(rank=entry.rank, member=entry.member, score=entry.score) for entry in entries]
