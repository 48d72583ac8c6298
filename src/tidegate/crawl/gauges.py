"""What waits and what failed, found out when somebody asks for the metrics; and old answers, forgotten once a day."""

from collections.abc import Callable

from tidegate.crawl.raw_states import RawState
from tidegate.crawl.raws import Raws
from tidegate.crawl.settings import CrawlSettings
from tidegate.database import Database
from tidegate.kernel.clock import milliseconds, monotonic_ms
from tidegate.runtime.figures import find_out
from tidegate.runtime.pruner import EVERY
from tidegate.telemetry import metrics
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)


class CrawlGauges:
    """Kept answers that wait, and dead letters."""

    def __init__(self, database: Database) -> None:
        self._raws = Raws(database)

    async def refresh(self) -> None:
        """Find out; what cannot be found out is shown as not a number."""
        await find_out("crawl", self._look, [metrics.CRAWL_RAWS_PENDING, metrics.CRAWL_RAWS_DEAD])

    async def _look(self) -> None:
        counts = await self._raws.counts([RawState.PENDING, RawState.FAILED])
        metrics.CRAWL_RAWS_PENDING.set(counts[RawState.PENDING])
        metrics.CRAWL_RAWS_DEAD.set(counts[RawState.FAILED])


class RawPruner:
    """A source of the timekeeper: once a day, and soon after a leader begins, old answers go."""

    def __init__(
        self, database: Database, settings: CrawlSettings, *, now_ms: Callable[[], float] = monotonic_ms
    ) -> None:
        self._database, self._kept, self._now_ms = database, settings.raws_kept, now_ms
        self._due_ms = 0.0

    async def fire(self) -> int | None:
        """Prune if the day is over; return when it will be."""
        if self._now_ms() >= self._due_ms:
            pruned = await Raws(self._database).prune(self._database.clock.now() - self._kept)
            self._due_ms = self._now_ms() + milliseconds(EVERY)
            if pruned:
                log.info("crawl.raws_pruned", rows=pruned)
        return max(1, round(self._due_ms - self._now_ms()))
