"""Forgets what is only kept against repetition, once it cannot be repeated any more."""

from collections.abc import Callable
from datetime import timedelta

from tidegate.database import Database, outbox
from tidegate.kernel.clock import milliseconds, monotonic_ms
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

KEEP = timedelta(days=30)
"""Longer than any event is tried again, or any dead letter is likely to be replayed."""
EVERY = timedelta(days=1)


class Pruner:
    """A source of the timekeeper: once a day, and soon after a leader begins, old rows of handled events go."""

    def __init__(self, database: Database, *, now_ms: Callable[[], float] = monotonic_ms) -> None:
        self._database, self._now_ms = database, now_ms
        self._due_ms = 0.0

    async def fire(self) -> int | None:
        """Prune if the day is over; return when it will be."""
        if self._now_ms() >= self._due_ms:
            pruned = await self._database.transaction(outbox.prune_handled, self._database.clock.now() - KEEP)
            self._due_ms = self._now_ms() + milliseconds(EVERY)
            if pruned:
                log.info("outbox.pruned", rows=pruned)
        return max(1, round(self._due_ms - self._now_ms()))
