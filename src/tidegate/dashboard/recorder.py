"""Records the history of the dashboard's charts in SQL. A due source of the leader's timekeeper.

It is due at the start of each period, and when a process becomes the leader. What is recorded first for a period stays:
see `engine/reports/history_points.py`. A crash before the commit leaves a period without points, unless the next leader
begins within it and records them; a crash after the commit leaves nothing to repair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from tidegate.core.clock import milliseconds, monotonic_ms, to_ms
from tidegate.engine.reports.history_points import PERIOD, period_of

if TYPE_CHECKING:
    from datetime import datetime

    from tidegate.dashboard.series import JobRateMeter, SeriesReader
    from tidegate.engine.collection import Collection
    from tidegate.engine.reports.gauges import RunFigures
    from tidegate.engine.reports.overview import EndedJobs
    from tidegate.runtime.waiting import PartialReads
    from tidegate.storage.sql import Transaction
    from tidegate.storage.sql.outbox import OutboxDepth
    from tidegate.system import OpenSystem, Sample

_LONG_AGO = 2 * PERIOD
"""If the last point is older, another process has led since: no rate is computed from it."""


class HistoryRecorder:
    """Records one point for each series and period. What it needs is imported by the leader only."""

    def __init__(self, installation: Collection, systems: Sequence[OpenSystem]) -> None:
        self._installation, self._systems = installation, systems
        self._database = installation.parts.database
        self._recorded: int | None = None
        self._counted_ms = float("-inf")
        self._counted_at: datetime | None = None
        self._job_rates: JobRateMeter | None = None
        self._series: SeriesReader | None = None

    async def fire(self) -> int:
        """Record the current period unless this process did; return in how many ms the next one begins."""
        now = self._database.clock.now()
        period = period_of(now)
        if period != self._recorded:
            samples = await self._read(now)
            await self._database.transaction(partial(_record, at=now, samples=samples))
            self._recorded = period
        return max(1, period * 1000 + milliseconds(PERIOD) - to_ms(self._database.clock.now()))

    async def _read(self, now: datetime) -> dict[str, Sample]:
        from tidegate.runtime.waiting import DATABASE, PartialReads

        reads = PartialReads()
        work = await reads.read(DATABASE, self._work(now), "work")
        return {**(work or {}), **await self._others(reads)}

    async def _others(self, reads: PartialReads) -> dict[str, Sample]:
        """Values of streams, timers and quotas, and those of the systems."""
        if self._series is None:
            from tidegate.dashboard.series import SeriesReader

            self._series = SeriesReader(self._installation, self._systems)
        return await self._series.read(reads)

    async def _work(self, now: datetime) -> dict[str, Sample]:
        """Values of runs, jobs and events; with rates if this process recorded the period before."""
        from tidegate.dashboard.series import JobRateMeter, work_samples

        began_ms = monotonic_ms()
        elapsed = timedelta(milliseconds=began_ms - self._counted_ms) if self._counted_at else timedelta.max
        if self._job_rates is None or elapsed > _LONG_AGO:
            self._job_rates, self._counted_at = JobRateMeter(), None
        runs, depth, ended = await self._database.read(partial(_counts, since=self._counted_at or now - PERIOD))
        is_first = self._counted_at is None
        # A baseline is taken as of a read without time before it; its rate is not known.
        rates = self._job_rates.update(ended, now, 0.0 if is_first else elapsed.total_seconds())
        self._counted_ms, self._counted_at = began_ms, now
        return work_samples(runs, depth, None if is_first else rates)


def _counts(tx: Transaction, *, since: datetime) -> tuple[RunFigures, OutboxDepth, dict[int, EndedJobs]]:
    from tidegate.engine.reports.gauges import count_runs
    from tidegate.engine.reports.history_points import moved_runs
    from tidegate.engine.reports.overview import ended_of
    from tidegate.storage.sql import outbox

    return count_runs(tx), outbox.depth(tx), ended_of(tx, moved_runs(tx, since))


def _record(tx: Transaction, *, at: datetime, samples: Mapping[str, Sample]) -> None:
    from tidegate.engine.reports.history_points import record

    record(tx, at, samples)
