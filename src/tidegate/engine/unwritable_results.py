"""Results whose end the database will not take, though it takes those of others: nothing of them is forgotten.

The upstream has been asked, so the call is not made again: the end alone is tried again, after growing pauses, until it
is written or its job is somebody else's. Whoever stops leaves the job to others, as with everything it has in hand.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import chain

from tidegate.core.backoff import Backoff
from tidegate.engine.job_results import JobResult

_PAUSES = Backoff(first=timedelta(seconds=1), most=timedelta(minutes=1), jitter=0.2)
_MOST = 200


class Stubborn:
    """Keeps such results, a limited number of them, and gives each to `on_due` when it is time to try it again."""

    def __init__(self, on_due: Callable[[JobResult], None]) -> None:
        self._on_due = on_due
        self._tries: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def keep(self, one: JobResult) -> bool:
        """Try it again later. False where there are too many already."""
        message = one.settlement.message
        if len(self._timers) >= _MOST:
            self._tries.pop(message, None)
            return False
        tries = self._tries[message] = self._tries.get(message, 0) + 1
        pause_s = _PAUSES.delay(tries).total_seconds()
        self._timers[message] = asyncio.get_running_loop().call_later(pause_s, self._due, one)
        return True

    def written(self, *results: Sequence[JobResult]) -> None:
        """These were taken, or are not ours any more."""
        if self._tries:
            for one in chain.from_iterable(results):
                self._tries.pop(one.settlement.message, None)

    def close(self) -> None:
        """Try nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._tries.clear()

    def _due(self, one: JobResult) -> None:
        del self._timers[one.settlement.message]
        self._on_due(one)
