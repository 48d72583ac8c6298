"""What some figures were in the last hour or so, in the memory of this process: enough for a chart, and bounded.

Longer history is for Prometheus. A series is a ring of points; one that stays the same needs two points, however long
it does, so that quiet times cost nothing.
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
"""An hour, where there is one every five seconds."""
BELOW = "/"
"""A name that ends with it means all names that begin with it."""


class Sample(NamedTuple):
    """A value, and what it counts."""

    value: float
    unit: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over time."""

    name: str
    unit: str
    points: list[tuple[float, float]]
    """Seconds since 1970, and the value; the oldest first. Between two points nothing else was seen."""


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Some series."""

    at: datetime
    names: list[str]
    """Of all series that there are."""
    series: list[Series]


class _Ring:
    """The points of one series."""

    def __init__(self, unit: str, most: int) -> None:
        self.unit, self._most = unit, most
        self._times, self._values = array("d"), array("d")

    def add(self, at_s: float, value: float) -> None:
        """A point; where the last two had this value too, the last one is moved instead."""
        times, values = self._times, self._values
        if times and at_s <= times[-1]:
            values[-1] = value
            return
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
    """All series. Where there are too many, the one that was not written for the longest time goes."""

    def __init__(self, *, most_series: int = MOST_SERIES, most_points: int = MOST_POINTS) -> None:
        require_positive("most_series", most_series)
        require_positive("most_points", most_points)
        self._most_series, self._most_points = most_series, most_points
        self._rings: OrderedDict[str, _Ring] = OrderedDict()

    @property
    def names(self) -> list[str]:
        """Of all series."""
        return sorted(self._rings)

    def record(self, at_s: float, figures: Mapping[str, Sample]) -> None:
        """What was seen at one moment."""
        for name, figure in figures.items():
            ring = self._rings.get(name)
            if ring is None:
                ring = self._rings[name] = _Ring(figure.unit, self._most_points)
            self._rings.move_to_end(name)
            ring.add(at_s, figure.value)
        while len(self._rings) > self._most_series:
            self._rings.popitem(last=False)

    def series(self, wanted: Collection[str]) -> list[Series]:
        """Those that are `wanted`, by name; what there is not is left out."""
        return [self._told(name) for name in self.names if _is_wanted(name, wanted)]

    def newest(self) -> list[Series]:
        """Every series with its last point only."""
        return [self._told(name, newest=1) for name in self.names]

    def _told(self, name: str, newest: int | None = None) -> Series:
        ring = self._rings[name]
        return Series(name=name, unit=ring.unit, points=ring.points(newest))


def _is_wanted(name: str, wanted: Iterable[str]) -> bool:
    return any(name.startswith(each) if each.endswith(BELOW) else name == each for each in wanted)
