"""Records samples in the history after changes, and while clients watch; there is no polling interval.

It is notified by the change feeds, at most every few seconds. It then samples every series once, and once more after a
pause, so that a chart also shows that activity ended. Without changes it takes no samples.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta

from tidegate.core.clock import monotonic_ms
from tidegate.dashboard.history import History
from tidegate.dashboard.series import JobRateMeter, SeriesReader, work_samples
from tidegate.engine.collection import Collection as Installation
from tidegate.engine.reports import gauges
from tidegate.engine.reports.overview import EndedJobs, ended_of
from tidegate.runtime.waiting import DATABASE, PartialReads, first_of, occurs
from tidegate.storage.sql import Transaction, outbox
from tidegate.system import OpenSystem, Sample

GAP = timedelta(seconds=5)
_LONG_AGO_MS = 15_000.0
"""If the last sample is older than this, no rate is computed from it."""


class Sampler:
    """The service that records samples. `sample` is for clients that watch."""

    def __init__(
        self,
        installation: Installation,
        systems: Sequence[OpenSystem],
        history: History,
        *,
        gap: timedelta = GAP,
    ) -> None:
        self._parts, self._change_feed = installation.parts, installation.change_feed
        self._history, self._gap = history, gap
        self._series = SeriesReader(installation, systems)
        self._feeds = [each.feed for system in systems for each in system.series() if each.feed is not None]
        self._job_rates, self._moved = JobRateMeter(), asyncio.Event()
        self._sampling, self._sampled_ms = asyncio.Lock(), float("-inf")
        self._counted_ms = float("-inf")
        """Time of the last successful read of finished jobs from the database."""

    async def run(self, stopping: asyncio.Event) -> None:
        """See `Service`."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._change_feed.follow(self._on_runs_changed, gap=self._gap))
            for feed in self._feeds:
                await stack.enter_async_context(feed.follow(self._on_changes, gap=self._gap))
            was_quiet = True
            while not stopping.is_set():
                if was_quiet:
                    await first_of(self._moved, stopping)
                # After activity, one more sample follows without waiting for a change: it shows
                # that the activity has ended.
                was_quiet = not self._moved.is_set()
                self._moved.clear()
                if not stopping.is_set():
                    await self.sample()
                    await occurs(stopping, within_s=self._gap.total_seconds())

    async def sample(self) -> None:
        """Record a sample of everything, unless that was done a moment ago; concurrent calls share one read."""
        async with self._sampling:
            elapsed_ms, gap_ms = monotonic_ms() - self._sampled_ms, self._gap.total_seconds() * 1000
            # A little less than the gap, since timers are not exact.
            if elapsed_ms < gap_ms * 0.9:
                return
            # Set before the reads, so that failing reads do not repeat without a pause.
            self._sampled_ms = monotonic_ms()
            figures = await self._look(was_quiet=elapsed_ms >= _LONG_AGO_MS)
            self._history.record(round(self._parts.database.clock.now().timestamp(), 1), figures)

    def _on_runs_changed(self, moved: Collection[int] | None) -> None:
        self._job_rates.mark_changed(moved)
        self._moved.set()

    def _on_changes(self, moved: Collection[str] | None) -> None:
        del moved
        self._moved.set()

    async def _look(self, *, was_quiet: bool) -> dict[str, Sample]:
        reads = PartialReads()
        work, others = await asyncio.gather(
            reads.read(DATABASE, self._work(was_quiet=was_quiet), "work"), self._series.read(reads)
        )
        return {**(work or {}), **others}

    async def _work(self, *, was_quiet: bool) -> dict[str, Sample]:
        """Rates of finished jobs. After a failed read, the next one covers the time of both."""
        moved, began_ms = self._job_rates.take_changed(), monotonic_ms()
        try:
            runs, depth, ended, now = await self._parts.database.read(_read, moved)
        except BaseException:
            self._job_rates.mark_changed(moved)
            raise
        elapsed_s = (began_ms - self._counted_ms) / 1000
        pace = self._job_rates.update(ended, now, None if was_quiet or math.isinf(elapsed_s) else elapsed_s)
        self._counted_ms = began_ms
        return work_samples(runs, depth, pace)


def _read(
    tx: Transaction, moved: Sequence[int]
) -> tuple[gauges.RunFigures, outbox.OutboxDepth, dict[int, EndedJobs], datetime]:
    return gauges.count_runs(tx), outbox.depth(tx), ended_of(tx, moved), tx.now
