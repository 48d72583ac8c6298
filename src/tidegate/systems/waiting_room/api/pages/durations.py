"""Durations in words."""

import math
from datetime import timedelta

from tidegate.systems.waiting_room import Estimate
from tidegate.systems.waiting_room.api.pages.texts import Language, say

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_IN_HOURS_FROM_S = 90 * _MINUTE
_FINE_MINUTES = 20
"""Above this, minutes are rounded to multiples of five, because estimates are not more exact."""
_LONGEST_HOURS = 12


def span(language: Language, length: timedelta) -> str:
    """A duration in one unit, rounded down."""
    seconds = max(0, math.floor(length.total_seconds()))
    for unit, size, least in (("days", _DAY, 2 * _DAY), ("hours", _HOUR, 2 * _HOUR), ("minutes", _MINUTE, 2 * _MINUTE)):
        if seconds >= least or (seconds == size and unit != "days"):
            return say(language, unit, seconds // size)
    return say(language, "seconds", seconds)


def wait(language: Language, estimate: Estimate | None, *, is_paused: bool = False) -> str:
    """The estimated wait as an interval, no more exact than the estimate.

    `wait` in waiting.js does the same; a test compares them.
    """
    if is_paused:
        return say(language, "wait.paused")
    if estimate is None:
        return say(language, "wait.unknown")
    soonest_s, latest_s = estimate.soonest.total_seconds(), estimate.latest.total_seconds()
    if latest_s < _MINUTE:
        return say(language, "wait.moment")
    if latest_s <= _IN_HOURS_FROM_S:
        step = 5 if latest_s > _FINE_MINUTES * _MINUTE else 1
        return _interval(language, "minutes", *_rounded(soonest_s / _MINUTE, latest_s / _MINUTE, step))
    shortest, longest = _rounded(soonest_s / _HOUR, latest_s / _HOUR, 1)
    if longest <= _LONGEST_HOURS:
        return _interval(language, "hours", shortest, longest)
    if shortest == 0:
        return say(language, "wait.unknown")
    return say(language, "wait.long", min(shortest, _LONGEST_HOURS))


def _rounded(shortest: float, longest: float, step: int) -> tuple[int, int]:
    """Round an interval outwards to whole steps."""
    return math.floor(shortest / step) * step, math.ceil(longest / step) * step


def _interval(language: Language, unit: str, shortest: int, longest: int) -> str:
    if shortest == 0:
        return say(language, f"wait.within.{unit}", longest)
    if shortest == longest:
        return say(language, f"wait.about.{unit}", longest)
    return say(language, f"wait.between.{unit}", longest, **{"from": f"{shortest:,}"})
