"""Rankings of an installation, open; and what they contribute to a process."""

from collections.abc import Mapping, Sequence

from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.runtime.delivery import Handler
from tidegate.runtime.service import Service
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Api, HttpContext, OpenSystem
from tidegate.systems.ranking.ranking import Ranking
from tidegate.systems.ranking.settings import RankingSettings

NO_BOARDS = "this installation has no boards. Set TIDEGATE_RANKING__BOARDS; docs/guides/ranking.md shows how"


def open_ranking(settings: Settings, database: Database, valkey: Valkey) -> Ranking | None:
    """The boards of the settings; None where there are none."""
    if not settings.section(RankingSettings).boards:
        return None
    return Ranking(
        database, valkey, settings.section(RankingSettings), breaker=CircuitBreaker("ranking", settings.breaker)
    )


class OpenRanking(OpenSystem):
    """What rankings contribute to a process; nothing where there are no boards."""

    def __init__(self, ranking: Ranking | None) -> None:
        self.ranking = ranking

    def event_handlers(self) -> Sequence[Handler]:
        """Count events."""
        return () if self.ranking is None else self.ranking.handlers

    def duties(self) -> Mapping[str, Service]:
        """Rebuild incomplete copies, and delete what no longer counts."""
        return {} if self.ranking is None else {"ranking": self.ranking.duty}

    def api(self, http: HttpContext) -> Api:
        """`/v1/rankings`."""
        del http
        if self.ranking is None:
            return Api(absent={"/v1/rankings": NO_BOARDS})
        from tidegate.systems.ranking.api import RankingRoutes

        return Api(routes=RankingRoutes(self.ranking).routes())
