"""The history of some values of the deployment, in SQL: one point for each series and period.

The leader records a point per period (`dashboard/recorder.py`). The series and the start of the period are the primary
key, and a point is inserted only if there is none: if two leaders observe the same period, one after the other or at
once, one point is recorded. A rate is an average over the part of the period that this leader observed, and not a sum.
So nothing is counted twice, and the rate is not too low if the leader began in the middle of the period. A period
without a leader, or in which a server was unavailable, has no point.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from math import isfinite
from typing import NamedTuple

from sqlalchemy import ColumnElement, func, select

from tidegate.core.arguments import require_positive
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.tables import collection_runs, history_points
from tidegate.runtime.retention import TableRule
from tidegate.storage.sql import Database, Transaction
from tidegate.system import Sample

PERIOD = timedelta(minutes=5)
_PERIOD_S = round(PERIOD.total_seconds())
_LONGEST_NAME = 200
_MOST_MOVED = 5_000
BELOW = "/"
"""A name that ends with this selects all names with that prefix."""
_AFTER_BELOW = chr(ord(BELOW) + 1)

_point = history_points.c


class StoredSeries(NamedTuple):
    """The stored points of one series: seconds since 1970 with the value, oldest first."""

    unit: str
    points: list[tuple[float, float]]


def period_of(at: datetime) -> int:
    """The start of the period of a time, in seconds since 1970."""
    return int(at.timestamp()) // _PERIOD_S * _PERIOD_S


def record(tx: Transaction, at: datetime, samples: Mapping[str, Sample]) -> None:
    """Store the samples of the period of `at`, except for series that have a point already."""
    period = period_of(at)
    rows = [
        {"series": name, "period": period, "value": sample.value, "unit": sample.unit}
        for name, sample in sorted(samples.items())
        if len(name) <= _LONGEST_NAME and isfinite(sample.value)
    ]
    tx.insert_many(history_points, rows, skip_existing=True)


def points(
    tx: Transaction, wanted: Collection[str], since: datetime, until: datetime, *, most: int = 400
) -> dict[str, StoredSeries]:
    """The points of the series that `wanted` selects from `since` until before `until`, about `most` for each series.

    If there are more, each point is the average of some periods, at the start of the first of them.
    """
    require_positive("most", most)
    first, last = since.timestamp(), until.timestamp()
    periods = max(1, -(-int(last - first) // (_PERIOD_S * most)))
    found = dict[str, StoredSeries]()
    start = (_point.period - _point.period % (periods * _PERIOD_S)).label("start")
    # One query for each name: the primary key serves each as a range.
    for name in wanted:
        selected = (
            select(_point.series, func.max(_point.unit), start, func.avg(_point.value))
            .where(*_selects(name), _point.period >= first, _point.period < last)
            .group_by(_point.series, start)
            .order_by(_point.series, start)
        )
        for series, unit, at, value in tx.execute(selected):
            found.setdefault(series, StoredSeries(unit, [])).points.append((float(at), round(float(value), 3)))
    return found


def names(tx: Transaction, since: datetime) -> list[str]:
    """Names of the series with points since then."""
    return list(tx.execute(select(_point.series).where(_point.period >= since.timestamp()).distinct()).scalars())


def moved_runs(tx: Transaction, since: datetime) -> list[int]:
    """Runs that are active or ended after `since`: the newest ones, at most some thousands."""
    run = collection_runs.c
    active = select(run.id).where(run.status.in_(ACTIVE_RUNS)).order_by(run.id.desc()).limit(_MOST_MOVED)
    ended = select(run.id).where(run.completed_at >= since).order_by(run.completed_at.desc()).limit(_MOST_MOVED)
    return [*tx.execute(active).scalars(), *tx.execute(ended).scalars()]


def history_rule(database: Database, keep: timedelta) -> TableRule:
    """Deletes points that are older than `keep`."""
    return TableRule(database, history_points, keep, lambda before: [_point.period < period_of(before)])


def _selects(name: str) -> list[ColumnElement[bool]]:
    if not name.endswith(BELOW):
        return [_point.series == name]
    return [_point.series >= name, _point.series < name.removesuffix(BELOW) + _AFTER_BELOW]
