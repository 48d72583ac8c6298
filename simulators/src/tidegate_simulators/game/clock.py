"""Two times: the world's, which can be set and runs at any speed, and the one by which calls are counted."""

import time
from collections.abc import Callable
from datetime import datetime

from tidegate_simulators.clock import to_ms
from tidegate_simulators.validation import require_not_negative


class WorldClock:
    """The world's time, and beside it a monotonic one that nothing can move: limits hold on that."""

    def __init__(
        self, epoch: datetime | None = None, speed: float = 1, ticks_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._ticks_ns, self._started_ns = ticks_ns, ticks_ns()
        self.runs_by_itself = ticks_ns is time.monotonic_ns
        self._epoch_ms = time.time_ns() // 1_000_000 if epoch is None else to_ms(epoch)
        self._speed, self._advanced_ms = speed, 0

    def read(self) -> tuple[int, int]:
        """Microseconds since the start by the machine's monotonic clock, and the world's time in ms since 1970."""
        passed_us = (self._ticks_ns() - self._started_ns) // 1_000
        return passed_us, self._epoch_ms + self._advanced_ms + int(passed_us * self._speed) // 1_000

    def now_ms(self) -> int:
        """The world's time in ms since 1970."""
        return self.read()[1]

    def advance(self, seconds: float) -> None:
        """Let time pass in the world, all at once. The limits notice nothing of it."""
        require_not_negative("seconds", seconds)
        self._advanced_ms += round(seconds * 1_000)
