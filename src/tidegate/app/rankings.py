"""Rankings, put together: the same in a process that counts, in one that answers, and in a command."""

from tidegate.app.settings import Settings
from tidegate.primitives.circuit_breaker import Breaker
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking.ranking import Ranking

NO_BOARDS = "this installation has no boards. Set TIDEGATE_RANKING__BOARDS; docs/guides/ranking.md shows how"


def open_ranking(settings: Settings, database: Database, valkey: Valkey) -> Ranking | None:
    """The boards of the settings; None where there are none."""
    if not settings.ranking.boards:
        return None
    return Ranking(database, valkey, settings.ranking, breaker=Breaker("ranking", settings.breaker))
