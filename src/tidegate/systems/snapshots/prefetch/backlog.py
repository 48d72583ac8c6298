"""Back-pressure: nothing more is asked for by the clock while workers have more than they do in half an hour.

Events that wait longer are of no use to anybody: what they ask for is due again before they are served, and the topic
only grows. How much workers do is measured while they have work; until then, the pace that the hour allows is believed.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

_WITHIN = timedelta(minutes=30)
"""What waits for longer than this waits in vain."""
_LOOK_EVERY = timedelta(seconds=10)
_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(minutes=5)
_BUSY = 100
"""With so many waiting, workers have something to do all the time: then what they do is what they can."""
_WEIGHT = 0.3


class Backlog:
    """What waits for the workers of a topic."""

    def __init__(self, lag: Callable[[], Awaitable[int]]) -> None:
        self._lag = lag
        self._waiting, self._added = 0, 0
        self._looked_at: datetime | None = None
        self._pace: float | None = None

    def add(self, events: int) -> None:
        """So many more were published."""
        self._added += events

    async def rest(self, now: datetime, pace: float) -> timedelta:
        """How long nothing should be added; none where there is room. `pace`: events per second, as long as nothing
        better is known."""
        if self._looked_at is None or now - self._looked_at >= _LOOK_EVERY:
            self._learn(await self._lag(), now)
        known = pace if self._pace is None else self._pace
        too_many = self._waiting + self._added - max(_BUSY, known * _WITHIN.total_seconds())
        if too_many < 0:
            return timedelta(0)
        return min(max(_SHORTEST, timedelta(seconds=too_many / max(known, 0.01))), _LONGEST)

    def _learn(self, waiting: int, now: datetime) -> None:
        if self._looked_at is not None and min(waiting, self._waiting) >= _BUSY:
            done = self._waiting + self._added - waiting
            pace = max(0.0, done / (now - self._looked_at).total_seconds())
            self._pace = pace if self._pace is None else self._pace + _WEIGHT * (pace - self._pace)
        elif waiting < _BUSY:
            self._pace = None
        self._waiting, self._added, self._looked_at = waiting, 0, now
