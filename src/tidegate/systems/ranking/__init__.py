"""Rankings: members of a board by day, week and month."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.ranking.model import MemberPlace, RankedMember, RankingPeriod, RankingTop, windows_at
    from tidegate.systems.ranking.service import Ranking
    from tidegate.systems.ranking.settings import Board, RankingSettings

__all__ = [
    "Board",
    "MemberPlace",
    "RankedMember",
    "Ranking",
    "RankingPeriod",
    "RankingSettings",
    "RankingTop",
    "windows_at",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.ranking.model": "MemberPlace RankedMember RankingPeriod RankingTop windows_at",
        "tidegate.systems.ranking.service": "Ranking",
        "tidegate.systems.ranking.settings": "Board RankingSettings",
    },
)
