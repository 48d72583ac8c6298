"""Estimates how long a number of calls takes, given the allowances of credentials. Pure computation without a clock."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import msgspec

from tidegate.core.arguments import require_not_negative

ASSUMED_LATENCY_S = 0.5
"""Assumed duration of a call before the first one was measured."""


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that one credential can make."""

    now: int
    """Calls left in the current window."""
    per_window: int
    """Calls in each later window."""
    opens_in_s: float
    """When the next window opens."""
    window_s: float
    per_minute: int
    concurrency: int


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The estimated duration of a number of calls."""

    seconds: float
    windows: int = 0
    """How many further windows are needed."""
    waits: int = 0
    """How often all credentials are exhausted until the next window opens."""
    first_wait_s: float | None = None
    """When the first of these waits ends, in seconds from now."""


class _CallPace:
    """The rate of calls: a token bucket that holds the calls of one minute."""

    def __init__(self, supplies: Sequence[Supply], seen_per_s: float | None) -> None:
        allowed = sum(supply.per_minute for supply in supplies)
        self._steady_per_s = allowed / 60
        self._most_per_s = seen_per_s or sum(supply.concurrency for supply in supplies) / ASSUMED_LATENCY_S
        self._most_at_once = self._at_once = float(allowed)

    def seconds_for(self, calls: int) -> float:
        """How long `calls` calls take now."""
        at_once = min(calls, self._at_once)
        self._at_once -= at_once
        return at_once / self._most_per_s + (calls - at_once) / min(self._steady_per_s, self._most_per_s)

    def rest(self, seconds: float) -> None:
        """Refill the bucket after a time without calls."""
        self._at_once = min(self._most_at_once, self._at_once + seconds * self._steady_per_s)


def forecast(calls: int, supplies: Sequence[Supply], *, calls_per_s: float | None = None) -> Forecast | None:
    """Estimate how long `calls` calls take. None if no credential can make them.

    `calls_per_s` is the measured rate; without it, `ASSUMED_LATENCY_S` is used. The estimate assumes that no other
    client uses the same credentials, and that each window opens when the previous one ends.
    """
    require_not_negative("calls", calls)
    useful = [supply for supply in supplies if supply.per_window > 0]
    if not useful:
        return None
    pace, there = _CallPace(useful, calls_per_s), sum(supply.now for supply in useful)
    left, at = calls - there, pace.seconds_for(min(calls, there))
    windows, waits, first_wait_s = 0, 0, None
    openings = [(supply.opens_in_s, index) for index, supply in enumerate(useful)]
    heapify(openings)
    while left > 0:
        opens_in_s, index = heappop(openings)
        if opens_in_s > at:
            pace.rest(opens_in_s - at)
            waits, first_wait_s = waits + 1, opens_in_s if first_wait_s is None else first_wait_s
        granted, windows = min(left, useful[index].per_window), windows + 1
        left, at = left - granted, max(at, opens_in_s) + pace.seconds_for(granted)
        heappush(openings, (opens_in_s + useful[index].window_s, index))
    return Forecast(seconds=at, windows=windows, waits=waits, first_wait_s=first_wait_s)
