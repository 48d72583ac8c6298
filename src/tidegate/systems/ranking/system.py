"""Declares rankings to the application."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.system import Command, Context, OpenSystem, System


class RankingSystem(System):
    """Boards that count events and rank members by day, week, month and in all."""

    name = "ranking"
    sections = {"ranking": "tidegate.systems.ranking.settings:RankingSettings"}
    commands = {
        "ranking": Command("tidegate.systems.ranking.commands:app", "Show who is ahead, and count everything anew.")
    }
    kept_tables = {
        "ranking_boards": "one row for each board of the settings",
        "ranking_events": "deleted by the board's own calendar, when every window that they count in is gone",
        "ranking_scores": "deleted by the board's own calendar, with their window",
    }

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Rankings, for the length of a block."""
        from tidegate.systems.ranking.opening import OpenRanking, open_ranking

        yield OpenRanking(open_ranking(context.settings, context.database, context.valkey))
