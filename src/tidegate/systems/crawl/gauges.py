"""Gauges of pending answers and dead letters, computed at scrape time."""

from tidegate.core.telemetry import metrics
from tidegate.runtime.scrape_gauges import compute_gauges
from tidegate.storage.sql import Database
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.raws import Raws


class CrawlGauges:
    """Gauges of pending answers and dead letters of crawls."""

    def __init__(self, database: Database) -> None:
        self._raws = Raws(database)

    async def refresh(self) -> None:
        """Read the counts; values that cannot be read become NaN."""
        await compute_gauges("crawl", self._look, [metrics.CRAWL_RAWS_PENDING, metrics.CRAWL_RAWS_DEAD])

    async def _look(self) -> None:
        counts = await self._raws.counts([RawState.PENDING, RawState.FAILED])
        metrics.CRAWL_RAWS_PENDING.set(counts[RawState.PENDING])
        metrics.CRAWL_RAWS_DEAD.set(counts[RawState.FAILED])
