"""History of some values: the last hour in the memory of this process, and older points in SQL.

In memory, a series is a ring buffer of points; an unchanged value needs only two points, so quiet times need no memory.
The leader records points in SQL, for the whole deployment. A chart shows them where those in memory begin later, so it
survives a restart.
"""

import asyncio
import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import msgspec

from tidegate.core.arguments import require_positive
from tidegate.core.errors import InvalidArgument, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.reports import history_points
from tidegate.engine.reports.history_points import BELOW, Sample, StoredSeries
from tidegate.storage.sql import Database, Transaction

log = get_logger(__name__)

T = TypeVar("T")

_LATELY = timedelta(hours=1)
_READ_WITHIN_S = 5.0
MOST_SERIES = 300
MOST_POINTS = 720
"""One hour at one point every five seconds."""


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


class HistoryReader:
    """Reads series from memory and from SQL."""

    def __init__(self, history: History, database: Database) -> None:
        self._history, self._database = history, database

    async def names(self) -> list[str]:
        """Names of all series of the last hour."""
        since = self._database.clock.now() - _LATELY
        stored = await self._stored(partial(history_points.names, since=since)) or []
        return sorted({*self._history.names, *stored})

    async def series(self, wanted: Collection[str], since: datetime | None, until: datetime | None) -> list[Series]:
        """The series that `wanted` selects, by name, by default since an hour ago.

        While the database is unavailable, the points in memory are returned. Raises `InvalidArgument` if the range is
        empty.
        """
        now = self._database.clock.now()
        first, last = since or now - _LATELY, until or now + history_points.PERIOD
        if first >= last:
            raise InvalidArgument("since", first.isoformat(), "must be before until and before now")
        read = partial(history_points.points, wanted=wanted, since=first, until=last)
        stored = await self._stored(read) or {}
        recent = {each.name: each for each in self._history.series(wanted)}
        earliest = -math.inf if since is None else first.timestamp()
        names = sorted({*recent, *stored})[:MOST_SERIES]
        return [_joined(name, recent.get(name), stored.get(name), earliest, last.timestamp()) for name in names]

    async def _stored(self, read: Callable[[Transaction], T]) -> T | None:
        try:
            async with asyncio.timeout(_READ_WITHIN_S):
                return await self._database.read(read)
        except (Unavailable, TimeoutError) as error:
            log.debug("dashboard.history_unread", error=str(error))
            return None


def _joined(name: str, recent: Series | None, stored: StoredSeries | None, earliest: float, latest: float) -> Series:
    """Points in memory of this range, and before them the stored ones."""
    points = [] if recent is None else [point for point in recent.points if earliest <= point[0] < latest]
    begin = points[0][0] if points else math.inf
    older = [] if stored is None else [point for point in stored.points if point[0] < begin]
    unit = recent.unit if recent is not None else stored.unit if stored is not None else ""
    return Series(name=name, unit=unit, points=[*older, *points])


def _is_wanted(name: str, wanted: Iterable[str]) -> bool:
    return any(name.startswith(each) if each.endswith(BELOW) else name == each for each in wanted)
