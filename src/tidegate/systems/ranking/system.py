"""Declares rankings to the application. Modules are imported when a process uses them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Api, Command, Context, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.runtime.delivery import Handler
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database
    from tidegate.storage.valkey import Valkey
    from tidegate.system import HttpContext
    from tidegate.systems.ranking.service import Ranking

NO_BOARDS = "this installation has no boards. Set TIDEGATE_RANKING__BOARDS; see docs/guides/ranking.md"


class RankingSystem(System):
    """Boards that count events and rank members by day, week and month."""

    name = "ranking"
    sections = {"ranking": "tidegate.systems.ranking.settings:RankingSettings"}
    metrics = "tidegate.systems.ranking.metrics"
    commands = {"ranking": Command("tidegate.systems.ranking.commands:app", "Show rankings, and rebuild them.")}
    kept_tables = {
        "ranking_boards": "one row for each board of the settings",
        "ranking_events": "deleted by the board's own calendar, when every window that they count in is gone",
        "ranking_scores": "deleted by the board's own calendar, with their window",
    }

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open the rankings for the duration of the block."""
        ranking = open_ranking(context.settings, context.database, context.valkey)
        if ranking is not None:
            context.share(ranking)
        yield OpenRanking(ranking)


def open_ranking(settings: Settings, database: Database, valkey: Valkey) -> Ranking | None:
    """Return the boards of the settings; None if there are none."""
    from tidegate.primitives.circuit_breaker import CircuitBreaker
    from tidegate.systems.ranking.service import Ranking
    from tidegate.systems.ranking.settings import RankingSettings

    ours = settings.section(RankingSettings)
    if not ours.boards:
        return None
    return Ranking(database, valkey, ours, breaker=CircuitBreaker("ranking", settings.breaker))


class OpenRanking(OpenSystem):
    """What rankings contribute to a process; nothing if there are no boards."""

    def __init__(self, ranking: Ranking | None) -> None:
        self.ranking = ranking

    def event_handlers(self) -> Sequence[Handler]:
        """Return the outbox handlers that count events."""
        return () if self.ranking is None else self.ranking.handlers

    def leader_services(self) -> Mapping[str, Service]:
        """Return the leader's service that rebuilds incomplete copies and deletes expired rows."""
        return {} if self.ranking is None else {"ranking": self.ranking.leader_service}

    def api(self, http: HttpContext) -> Api:
        """Return the routes under `/v1/rankings`."""
        del http
        if self.ranking is None:
            return Api(absent={"/v1/rankings": NO_BOARDS})
        from tidegate.systems.ranking.api import RankingRoutes

        return Api(routes=RankingRoutes(self.ranking).routes())
