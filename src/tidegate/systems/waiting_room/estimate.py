"""Estimates the wait of a visitor as an interval, from the recent speed of the line."""

import math
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from tidegate.core.arguments import require_not_negative

_LEAST_BATCHES = 2
_LONGEST = timedelta(days=365)
"""Upper bound of an estimate. A line that last moved long ago would otherwise give spans that `timedelta` cannot
hold."""
_SHARES = (1.0, 0.5, 0.25)
"""The speed is measured over all known steps, over their later half, and over the last quarter."""


class LineMove(msgspec.Struct, frozen=True):
    """A step by which the line got shorter: numbers of visitors that were admitted, and that left or were removed."""

    at_ms: int
    admitted: int
    gone: int = 0


class Estimate(msgspec.Struct, frozen=True):
    """Interval in which the visitor will probably be admitted."""

    soonest: timedelta
    latest: timedelta


class Pace(msgspec.Struct, frozen=True):
    """Time per visitor ahead: lower and upper bound."""

    soonest_ms: float
    latest_ms: float

    def wait(self, ahead: int) -> Estimate:
        """Return how long a visitor with `ahead` visitors before them waits."""
        require_not_negative("ahead", ahead)
        needed = ahead + 1
        return Estimate(_span(needed * self.soonest_ms), _span(needed * self.latest_ms))


def _span(ms: float) -> timedelta:
    return timedelta(milliseconds=ms) if ms < _LONGEST.total_seconds() * 1000 else _LONGEST


def measure_pace(moves: Sequence[LineMove], now_ms: int) -> Pace | None:
    """Return the speed of the line; None if it is not known yet.

    The interval spans the speeds of several recent periods, and is wider the less was observed. Visitors that left were
    ahead in the best case, and behind in the worst. The time since the last step counts, so a line that stands still
    becomes slower.
    """
    steps = [move for move in moves if move.admitted]
    if len(steps) < _LEAST_BATCHES or now_ms <= steps[0].at_ms:
        return None
    stretches = [steps[-max(_LEAST_BATCHES, math.ceil(len(steps) * share)) :] for share in _SHARES]
    # Bounds over all periods, so that a change of the speed widens the interval before it moves it.
    fastest = max(_speed(stretch, now_ms, 1) for stretch in stretches)
    slowest = min(_speed(stretch, now_ms, 0) for stretch in stretches)
    # The relative deviation of a random count is the inverse of its root.
    doubt = min(0.9, 1 / math.sqrt(sum(step.admitted for step in steps[1:])))
    return Pace(1 / (fastest * (1 + doubt)), 1 / (slowest * (1 - doubt)))


def _speed(steps: Sequence[LineMove], now_ms: int, share_ahead: int) -> float:
    """Return how many visitors per ms moved up, counting this share of the visitors that left.

    The first step only marks the beginning.
    """
    moved = sum(step.admitted + share_ahead * step.gone for step in steps[1:])
    return moved / max(1, now_ms - steps[0].at_ms)
