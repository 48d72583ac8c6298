"""How long somebody will probably wait: an interval, from how fast the line has moved lately."""

import math
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from tidegate.kernel.arguments import require_not_negative

_LEAST_BATCHES = 2
_SHARES = (1.0, 0.5, 0.25)
"""The speed is taken over all that is known, over the later half of it, and over the last quarter."""


class Move(msgspec.Struct, frozen=True):
    """A step by which the line got shorter: so many were let in, so many gave up or were gone."""

    at_ms: int
    admitted: int
    gone: int = 0


class Estimate(msgspec.Struct, frozen=True):
    """Not before, and probably not after."""

    soonest: timedelta
    latest: timedelta


def estimate_wait(moves: Sequence[Move], ahead: int, now_ms: int) -> Estimate | None:
    """How long one waits who has `ahead` before him; None while nobody knows.

    The interval spans the speeds of several stretches of the past, and is wider the less was seen. A line that has
    stood still since its last step is slower for it.
    """
    require_not_negative("ahead", ahead)
    steps = [(move.at_ms, move.admitted + move.gone) for move in moves]
    if len(steps) < _LEAST_BATCHES or now_ms <= steps[0][0]:
        return None
    speeds = [speed for share in _SHARES if (speed := _speed(steps, share, now_ms)) is not None]
    if not speeds:
        return None
    # Counts of things that come at random vary by the root of their number.
    doubt = min(0.9, 1 / math.sqrt(sum(count for _, count in steps[1:])))
    needed = ahead + 1
    soonest_ms, latest_ms = needed / (max(speeds) * (1 + doubt)), needed / (min(speeds) * (1 - doubt))
    return Estimate(timedelta(milliseconds=soonest_ms), timedelta(milliseconds=latest_ms))


def _speed(steps: Sequence[tuple[int, int]], share: float, now_ms: int) -> float | None:
    """How many per ms moved up, over the last `share` of the steps; the first of them only marks the beginning."""
    last = steps[-max(_LEAST_BATCHES, math.ceil(len(steps) * share)) :]
    moved, span_ms = sum(count for _, count in last[1:]), now_ms - last[0][0]
    return moved / span_ms if moved and span_ms > 0 else None
