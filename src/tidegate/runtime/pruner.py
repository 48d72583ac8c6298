"""Forgets what is only kept against repetition, once it cannot be repeated any more."""

from collections.abc import Callable
from datetime import datetime, timedelta

from tidegate.database import Database, Transaction, outbox
from tidegate.kernel.clock import milliseconds, monotonic_ms
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

KEEP = timedelta(days=30)
"""Longer than any event is tried again, or any dead letter is likely to be replayed."""
EVERY = timedelta(days=1)


class Pruner:
    """A source of the timekeeper: once a day, and soon after a leader begins, old rows go.

    `prune` removes what is older than a moment, and returns how many rows that were: those of handled events, where
    nothing else is said. `tell` is told of them, if there were any.
    """

    def __init__(
        self,
        database: Database,
        prune: Callable[[Transaction, datetime], int] = outbox.prune_handled,
        *,
        tell: Callable[[int], object] = lambda rows: log.info("outbox.pruned", rows=rows),
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._database, self._prune, self._tell, self._now_ms = database, prune, tell, now_ms
        self._due_ms = 0.0

    async def fire(self) -> int | None:
        """Prune if the day is over; return when it will be."""
        if self._now_ms() >= self._due_ms:
            pruned = await self._database.transaction(self._prune, self._database.clock.now() - KEEP)
            self._due_ms = self._now_ms() + milliseconds(EVERY)
            if pruned:
                self._tell(pruned)
        return max(1, round(self._due_ms - self._now_ms()))
