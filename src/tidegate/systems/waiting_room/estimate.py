"""How long somebody will probably wait: an interval, from how fast the line has moved lately."""

import math
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from tidegate.core.arguments import require_not_negative

_LEAST_BATCHES = 2
_LONGEST = timedelta(days=365)
"""Nobody waits longer; and a line that last moved long ago would give spans that no clock can count."""
_SHARES = (1.0, 0.5, 0.25)
"""The speed is taken over all that is known, over the later half of it, and over the last quarter."""


class LineMove(msgspec.Struct, frozen=True):
    """A step by which the line got shorter: so many were let in, so many gave up or were gone."""

    at_ms: int
    admitted: int
    gone: int = 0


class Estimate(msgspec.Struct, frozen=True):
    """Not before, and probably not after."""

    soonest: timedelta
    latest: timedelta


class Pace(msgspec.Struct, frozen=True):
    """How long each who is ahead takes: at least, and probably at most."""

    soonest_ms: float
    latest_ms: float

    def wait(self, ahead: int) -> Estimate:
        """How long one waits who has `ahead` before him."""
        require_not_negative("ahead", ahead)
        needed = ahead + 1
        return Estimate(_span(needed * self.soonest_ms), _span(needed * self.latest_ms))


def _span(ms: float) -> timedelta:
    return timedelta(milliseconds=ms) if ms < _LONGEST.total_seconds() * 1000 else _LONGEST


def measure_pace(moves: Sequence[LineMove], now_ms: int) -> Pace | None:
    """How fast the line moves; None while nobody knows.

    The interval spans the speeds of several stretches of the past, and is wider the less was seen. Those who gave up
    were ahead of him at best, and behind him at worst. A line that has stood still since its last step is slower for
    it.
    """
    steps = [move for move in moves if move.admitted]
    if len(steps) < _LEAST_BATCHES or now_ms <= steps[0].at_ms:
        return None
    stretches = [steps[-max(_LEAST_BATCHES, math.ceil(len(steps) * share)) :] for share in _SHARES]
    fastest = max(_speed(stretch, now_ms, 1) for stretch in stretches)
    slowest = min(_speed(stretch, now_ms, 0) for stretch in stretches)
    # Counts of things that come at random vary by the root of their number.
    doubt = min(0.9, 1 / math.sqrt(sum(step.admitted for step in steps[1:])))
    return Pace(1 / (fastest * (1 + doubt)), 1 / (slowest * (1 - doubt)))


def _speed(steps: Sequence[LineMove], now_ms: int, share_ahead: int) -> float:
    """How many per ms moved up, with this share of those who gave up; the first step only marks the beginning."""
    moved = sum(step.admitted + share_ahead * step.gone for step in steps[1:])
    return moved / max(1, now_ms - steps[0].at_ms)
