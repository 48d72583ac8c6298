"""Records the history of some values during the last hour, in the memory of this process.

The history is bounded, and enough for a chart; Prometheus keeps a longer one. A series is a ring buffer of points; an
unchanged value needs only two points, so quiet times need no memory. The rate of finished jobs is computed from the
counters of changed runs.

The sampler is notified by the change feeds, at most every few seconds. It then samples every series once, and once more
after a pause, so that a chart also shows that activity ended. Without changes it takes no samples.
"""

import asyncio
import math
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from tidegate.core.arguments import require_positive
from tidegate.core.clock import monotonic_ms
from tidegate.engine.collection import Collection as Installation
from tidegate.engine.credentials import Credential
from tidegate.engine.credentials.records import everything
from tidegate.engine.reports import gauges
from tidegate.engine.reports.overview import EndedJobs, ended_of
from tidegate.primitives.gate import CredentialStatus
from tidegate.primitives.stream import Stream
from tidegate.runtime.waiting import DATABASE, TRANSPORT, VALKEY, PartialReads, first_of, occurs
from tidegate.storage.sql import Transaction, outbox
from tidegate.systems.snapshots.service import Snapshots
from tidegate.systems.snapshots.topics import SnapshotsOverviewReader

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


_MOST_REMEMBERED = 20_000
_MOST_MOVED = 5_000
"""Maximum number of runs per read; the others are read later."""


class JobRates(NamedTuple):
    """Rates in jobs per second."""

    done: float
    failed: float


class JobRateMeter:
    """Collects changed runs, and compares their counters with the previous ones."""

    def __init__(self) -> None:
        self._moved = set[int]()
        self._known: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._looked_at: datetime | None = None

    def mark_changed(self, moved: Collection[int] | None) -> None:
        """Mark runs as changed; None marks all known runs."""
        self._moved.update(self._known if moved is None else moved)

    def take_changed(self) -> list[int]:
        """Return the runs with counters that must be read now."""
        # The newest runs first: they are the active ones.
        taken = sorted(self._moved)[-_MOST_MOVED:]
        self._moved.difference_update(taken)
        return taken

    def update(self, found: Mapping[int, EndedJobs], now: datetime, elapsed_s: float | None) -> JobRates:
        """The rate of finished jobs since the last read, `elapsed_s` seconds ago.

        None means that the last read is too old or missing. Then the counters count for the time until the next read.
        """
        done = failed = 0
        for run_id, ended in found.items():
            before = self._known.pop(run_id, None)
            if before is None:
                before = (0, 0) if self._is_new(ended) else (ended.succeeded, ended.failed)
            if elapsed_s is None:
                # Keep the old counters and read the run again, so that the jobs are counted over a known time.
                self._known[run_id] = before
                self._moved.add(run_id)
            else:
                self._known[run_id] = (ended.succeeded, ended.failed)
                # Not below zero: a failed job that is retried lowers the counter of failures.
                done, failed = done + max(0, ended.succeeded - before[0]), failed + max(0, ended.failed - before[1])
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        self._looked_at = now
        return JobRates(0.0, 0.0) if not elapsed_s else JobRates(done / elapsed_s, failed / elapsed_s)

    def _is_new(self, ended: EndedJobs) -> bool:
        """Whether the run began after the last read, so that all its finished jobs are new."""
        return self._looked_at is not None and ended.created_at >= self._looked_at


GAP = timedelta(seconds=5)
_MOST_POOLS = 20
_LONG_AGO_MS = 15_000.0
"""If the last sample is older than this, no rate is computed from it."""


class Sampler:
    """The service that records samples. `sample` is for clients that watch."""

    def __init__(
        self,
        installation: Installation,
        streams: Sequence[Stream],
        history: History,
        *,
        snapshots: Snapshots | None = None,
        gap: timedelta = GAP,
    ) -> None:
        self._installation = installation
        self._parts, self._change_feed = installation.parts, installation.change_feed
        self._streams, self._history, self._gap = streams, history, gap
        self._snapshots = snapshots
        self._refreshes = None if snapshots is None else SnapshotsOverviewReader(snapshots)
        self._job_rates, self._moved = JobRateMeter(), asyncio.Event()
        self._sampling, self._sampled_ms = asyncio.Lock(), float("-inf")
        self._counted_ms = float("-inf")
        """Time of the last successful read of finished jobs from the database."""

    async def run(self, stopping: asyncio.Event) -> None:
        """See `Service`."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._change_feed.follow(self._on_runs_changed, gap=self._gap))
            if self._snapshots is not None:
                await stack.enter_async_context(self._snapshots.feed.follow(self._on_refreshes, gap=self._gap))
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

    def _on_refreshes(self, moved: Collection[str] | None) -> None:
        del moved
        self._moved.set()

    async def _look(self, *, was_quiet: bool) -> dict[str, Sample]:
        reads = PartialReads()
        work, runtime, quotas, refreshes = await asyncio.gather(
            reads.read(DATABASE, self._work(was_quiet=was_quiet), "work"),
            reads.read(VALKEY, self._runtime(), "runtime"),
            reads.read(f"{DATABASE} or {VALKEY}", self._quotas(), "quotas"),
            reads.read(TRANSPORT, self._of_snapshots(), "snapshots"),
        )
        return {**(work or {}), **(runtime or {}), **(quotas or {}), **(refreshes or {})}

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
        return {
            "runs/active": Sample(runs.active, "runs"),
            "jobs/pending": Sample(runs.pending, "jobs"),
            "jobs/done": Sample(round(pace.done, 2), "jobs/s"),
            "jobs/failed": Sample(round(pace.failed, 2), "jobs/s"),
            "outbox/pending": Sample(depth.pending, "events"),
        }

    async def _runtime(self) -> dict[str, Sample]:
        contexts = self._installation.contexts.values()
        lengths = await asyncio.gather(*(parts.gate.lengths() for parts in contexts))
        alarms = await asyncio.gather(*(parts.timers.status() for parts in contexts))
        found = {
            "jobs/waiting": Sample(sum(waiting for waiting, _ in lengths), "jobs"),
            "timers/gate": Sample(sum(planned for _, planned in lengths), "timers"),
            "timers/alarms": Sample(sum(each.count for each in alarms), "timers"),
        }
        for stream in self._streams:
            status = await stream.status()
            found[f"stream/{stream.name}/depth"] = Sample(status.depth, "messages")
            found[f"stream/{stream.name}/lag"] = Sample(status.lag, "messages")
        return found

    async def _quotas(self) -> dict[str, Sample]:
        known = [stored.credential for stored in await self._parts.database.read(everything)]
        pools = sorted({*self._installation.pools, *(each.pool for each in known)})[:_MOST_POOLS]
        found: dict[str, Sample] = {}
        for pool in pools:
            for one in (await self._installation.status(pool)).credentials:
                found |= _left(one, known)
        return found

    async def _of_snapshots(self) -> dict[str, Sample]:
        if self._snapshots is None or self._refreshes is None:
            return {}
        status, lags = await asyncio.gather(self._snapshots.limiter.status(), self._refreshes.lags())
        rates = self._refreshes.rates(status)
        found = {
            f"snapshots/rate/{each.priority}": Sample(each.per_second, "calls/s")
            for each in rates
            if each.per_second is not None
        }
        return found | {f"snapshots/lag/{each.topic}": Sample(each.lag, "messages") for each in lags}


def _left(one: CredentialStatus, known: Sequence[Credential]) -> dict[str, Sample]:
    """The remaining quota of a credential per bucket, as far as the upstream reported it."""
    name = ", ".join(each.name for each in known if each.allowance == one.name) or one.name
    return {
        f"quota/{name}/{bucket.name}": Sample(max(0, bucket.remaining - bucket.held - bucket.lost), "calls")
        for bucket in one.buckets
        if bucket.remaining is not None
    }


def _read(
    tx: Transaction, moved: Sequence[int]
) -> tuple[gauges.RunFigures, outbox.OutboxDepth, dict[int, EndedJobs], datetime]:
    return gauges.count_runs(tx), outbox.depth(tx), ended_of(tx, moved), tx.now
