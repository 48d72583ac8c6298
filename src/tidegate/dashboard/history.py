"""History of some values during the last hour, in the memory of this process: bounded, and enough for a chart.

Prometheus keeps longer history. A series is a ring buffer of points; an unchanged value needs only two points, so quiet
times need no memory.
"""

from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from tidegate.core.arguments import require_positive

MOST_SERIES = 300
MOST_POINTS = 720
"""One hour at one point every five seconds."""
BELOW = "/"
"""A name that ends with this selects all names with that prefix."""


class Sample(NamedTuple):
    """A value with its unit."""

    value: float
    unit: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The points of one value over time."""

    name: str
    unit: str
    points: list[tuple[float, float]]
    """Pairs of Unix time in seconds and value, oldest first. Between two points no other value was seen."""


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """The selected series, and the names of all series."""

    at: datetime
    names: list[str]
    """Names of all series."""
    series: list[Series]


class _Ring:
    """The ring buffer of one series."""

    def __init__(self, unit: str, most: int) -> None:
        self.unit, self._most = unit, most
        self._times, self._values = array("d"), array("d")

    def add(self, at_s: float, value: float) -> None:
        """Add a point. If the last two points have the same value, the last one is moved instead."""
        times, values = self._times, self._values
        # The clock was set back, or two samples have the same time: keep the times of a series ascending.
        if times and at_s <= times[-1]:
            values[-1] = value
            return
        # Two points describe a constant section, however long it lasts.
        if len(values) > 1 and values[-1] == values[-2] == value:
            times[-1] = at_s
            return
        if len(times) == self._most:
            del times[0], values[0]
        times.append(at_s)
        values.append(value)

    def points(self, newest: int | None = None) -> list[tuple[float, float]]:
        start = 0 if newest is None else -newest
        return list(zip(self._times[start:], self._values[start:], strict=True))


class History:
    """All series. Beyond the maximum, the series that was not written for the longest time is removed."""

    def __init__(self, *, most_series: int = MOST_SERIES, most_points: int = MOST_POINTS) -> None:
        require_positive("most_series", most_series)
        require_positive("most_points", most_points)
        self._most_series, self._most_points = most_series, most_points
        self._rings: OrderedDict[str, _Ring] = OrderedDict()

    @property
    def names(self) -> list[str]:
        """Names of all series, sorted."""
        return sorted(self._rings)

    def record(self, at_s: float, figures: Mapping[str, Sample]) -> None:
        """Add the samples of one moment."""
        for name, figure in figures.items():
            ring = self._rings.get(name)
            if ring is None:
                ring = self._rings[name] = _Ring(figure.unit, self._most_points)
            self._rings.move_to_end(name)
            ring.add(at_s, figure.value)
        while len(self._rings) > self._most_series:
            self._rings.popitem(last=False)

    def series(self, wanted: Collection[str]) -> list[Series]:
        """The series that `wanted` selects, by name."""
        return [self._series_of(name) for name in self.names if _is_wanted(name, wanted)]

    def newest(self) -> list[Series]:
        """Every series with its last point only."""
        return [self._series_of(name, newest=1) for name in self.names]

    def _series_of(self, name: str, newest: int | None = None) -> Series:
        ring = self._rings[name]
        return Series(name=name, unit=ring.unit, points=ring.points(newest))


def _is_wanted(name: str, wanted: Iterable[str]) -> bool:
    return any(name.startswith(each) if each.endswith(BELOW) else name == each for each in wanted)
