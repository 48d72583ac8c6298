"""Measures when the event loop of a simulator did not run, because then arrivals are read late.

TCP has no arrival timestamps: a request is stamped when the loop reads it. A loop that was blocked, or a process
without CPU time, reads everything that came meanwhile at once, so requests that came a second apart get the same stamp.
A timer that fires late reveals such a stall, and `LoopMonitor.delay_us` bounds how long a request may have waited.
Limits use the bound: a request counts as over the limit only if it was over the limit wherever in that span it came.
Otherwise the window is reported as uncertain.
"""

import asyncio
import time

import msgspec

TICK_S = 0.01
STALL_US = 30_000
"""Gaps between two ticks up to this length count as no stall; stamps are that exact."""
_BACKLOG_US = 100_000
"""So long after a stall, what is read may still have come during it: connections are accepted first, then read."""
_MOST_SAMPLES = 200


class StallReport(msgspec.Struct, frozen=True):
    """The stalls of the simulator's event loop."""

    count: int
    total_ms: float
    longest_ms: float


class UncertainWindow(msgspec.Struct, frozen=True):
    """A window in which a limit may have been exceeded, or not: the simulator read requests late."""

    rule: str
    caller: str
    at_s: float
    """When its last request was read, by the clock of the simulator."""
    read: float
    """What was counted by the time of reading."""
    certain: float
    """What certainly came within one window."""
    limit: float
    stall_ms: float
    """How late requests of this window may have been read."""


class UncertainWindows:
    """The windows that cannot be judged; those that overlap are one."""

    def __init__(self) -> None:
        self.count = 0
        self.samples: list[UncertainWindow] = []
        self._last: dict[tuple[str, str], tuple[float, int]] = {}
        """When the last window of a rule and caller ended, and its place among the samples."""

    def add(self, window: UncertainWindow, length_s: float) -> None:
        """Add a window of this length, or extend the one that it overlaps."""
        key = window.rule, window.caller
        ended_s, place = self._last.get(key, (float("-inf"), -1))
        if window.at_s - ended_s >= length_s:
            place = len(self.samples)
            self.count += 1
            if place < _MOST_SAMPLES:
                self.samples.append(window)
        elif place < len(self.samples):
            before = self.samples[place]
            self.samples[place] = msgspec.structs.replace(
                window,
                read=max(before.read, window.read),
                certain=max(before.certain, window.certain),
                stall_ms=max(before.stall_ms, window.stall_ms),
            )
        self._last[key] = window.at_s, place


class LoopMonitor:
    """Ticks on the running loop between `start` and `stop`.

    A simulator with a clock that tests move is not monitored: its stamps do not depend on when the loop runs.
    """

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        self._timer: asyncio.TimerHandle | None = None
        self._before_us = self._last_us = 0
        self._stalled_from_us = self._backlog_until_us = 0
        self.clear()

    def clear(self) -> None:
        """Count stalls from zero."""
        self._count = self._total_us = self._longest_us = 0

    def start(self) -> None:
        """Begin to measure stalls."""
        if self._is_enabled:
            now_us = time.monotonic_ns() // 1_000
            self._before_us = self._last_us = now_us
            self._backlog_until_us = 0
            self._schedule()

    def stop(self) -> None:
        """Stop measuring; end the task."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def delay_us(self) -> int:
        """How long ago a request that is read now may have come, in µs; 0 where there was no stall.

        What is read after a tick was not there yet when the loop polled before the tick before it.
        """
        if self._timer is None:
            return 0
        now_us = time.monotonic_ns() // 1_000
        if now_us - self._last_us > STALL_US:
            return now_us - self._before_us
        return now_us - self._stalled_from_us if now_us < self._backlog_until_us else 0

    def report(self) -> StallReport:
        """The stalls so far."""
        return StallReport(self._count, self._total_us / 1_000, self._longest_us / 1_000)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now_us = time.monotonic_ns() // 1_000
        gap_us = now_us - self._last_us
        if gap_us > STALL_US:
            self._count += 1
            self._total_us += gap_us
            self._longest_us = max(self._longest_us, gap_us)
            self._stalled_from_us, self._backlog_until_us = self._before_us, now_us + _BACKLOG_US
        self._before_us, self._last_us = self._last_us, now_us
        self._schedule()
