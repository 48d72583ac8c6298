"""`/v1/rankings`: the first members by day, week and month, and the neighbours of a member."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Annotated, Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.http.dispatch import RequestInput
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


class RankingQuery(RequestInput, frozen=True, kw_only=True):
    """The window and the number of members."""

    period: Period = Period.DAILY
    date: Day | None = None
    """A day of the window, in the calendar of the board. Default: today."""
    limit: Annotated[int, Meta(ge=1, le=LARGEST_TOP)] = 10


class PlaceQuery(RequestInput, frozen=True, kw_only=True):
    """The window and the number of neighbours."""

    period: Period = Period.DAILY
    date: Day | None = None
    """A day of the window, in the calendar of the board. Default: today."""
    neighbours: Annotated[int, Meta(ge=0, le=MOST_NEIGHBOURS)] = 2
    """Number of members before the member, and number after it."""


class MemberRank(msgspec.Struct, frozen=True, kw_only=True):
    """A member with its rank."""

    rank: int
    """The rank, starting at 1 and unique: of equal scores, the one that was reached first is ahead."""
    member: str
    score: int


class InWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The window of an answer."""

    board: str
    period: Period
    window: str
    """`2025-11-29`, `2025-W48` or `2025-11`."""
    starts_at: datetime
    ends_at: datetime
    kept_until: datetime
    """The window's scores are deleted at this time."""
    total: int
    """Members with a score in this window."""
    degraded: bool
    """Whether the answer is empty because the server is unavailable, or its copy is being rebuilt."""


class RankingPage(InWindow, frozen=True, kw_only=True):
    """The first members of a window."""

    members: list[MemberRank]


class PlaceView(InWindow, frozen=True, kw_only=True):
    """The place of a member in a window."""

    member: str
    rank: int | None
    """Null if the member has no score in this window, or the answer is degraded."""
    score: int | None
    around: list[MemberRank]
    """The member with its neighbours, in order."""


class RankingRoutes:
    """Routes that read rankings."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of rankings."""
        place = "/v1/rankings/{board}"
        return [
            route("GET", place, self.show_ranking, TAG, is_high_volume=True),
            route("GET", f"{place}/members/{{member:path}}", self.show_ranked_member, TAG, is_high_volume=True),
        ]

    async def show_ranking(self, board: BoardName, query: RankingQuery) -> RankingPage:
        """Show the first members of a board for a day, an ISO week or a month."""
        top = await self._ranking.top(board, query.period, on=query.date, limit=query.limit)
        return RankingPage(
            **_window(board, top.window), total=top.total, degraded=top.degraded, members=_ranked(top.entries)
        )

    async def show_ranked_member(self, board: BoardName, member: Member, query: PlaceQuery) -> PlaceView:
        """Show the place of a member on a board, with its neighbours."""
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


def _ranked(entries: Sequence[Entry]) -> list[MemberRank]:
    return [MemberRank(rank=entry.rank, member=entry.member, score=entry.score) for entry in entries]
