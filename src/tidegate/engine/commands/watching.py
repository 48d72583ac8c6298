"""Reads the progress of runs repeatedly, for the live display, the plain lines and the summary."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

import msgspec

from tidegate.core.errors import Unavailable
from tidegate.engine.change_feed import Watch
from tidegate.engine.commands.permits import Forecast, Permits, forecast, permits_of, supplies
from tidegate.engine.completion import failed_completions as find_failed_completions
from tidegate.engine.lifecycle import ACTIVE_RUNS, OPEN_RUNS, RunState
from tidegate.engine.reports.progress import (
    KindProgress,
    ResourceProgress,
    is_any_active,
    kinds_of,
    resources_of,
    runs_by_id,
)
from tidegate.engine.runs import Run
from tidegate.engine.source_plugin import ResourceUnit
from tidegate.primitives.gate import CredentialLimits, Gate, PoolStatus
from tidegate.storage.sql import Database, Transaction

_RATE_OVER_S, _TRUSTED_AFTER_S = 15.0, 1.0
_MOST_POOLS = 20
"""Maximum number of pools to read: each user with an own credential has an own pool."""
_SHARE_OF_TIME = 0.1
"""Maximum share of time that is spent reading, because reading a thousand runs loads the database."""
_LEAST_PAUSE_S = 0.25
_JITTER_S = 0.5


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of runs at one point in time."""

    at: datetime
    runs: Sequence[Run]
    kinds: Mapping[int, Sequence[KindProgress]]
    """Progress by run id."""
    resources: Mapping[int, ResourceProgress] = {}
    """What the source counts beside subjects, such as repositories, by run id."""
    unit: ResourceUnit | None = None
    permits: Sequence[Permits] = ()
    calls_per_s: float = 0.0
    end: Forecast | None = None
    failed_completions: Mapping[int, str] = {}
    """The errors of permanently failed completions, by run id."""
    error: str | None = None
    """The error of an unavailable server; the view is then not up to date."""

    @property
    def active(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.runs if run.status in ACTIVE_RUNS]

    @property
    def is_over(self) -> bool:
        """Whether all runs have ended."""
        return not self.active

    @property
    def is_stuck(self) -> bool:
        """Whether all active runs need a retry to end."""
        return bool(self.active) and all(run.id in self.failed_completions for run in self.active)

    @property
    def is_growing(self) -> bool:
        """Whether repositories are still being found."""
        return any(run.status is RunState.PLANNING for run in self.runs)

    @property
    def ends_at(self) -> datetime | None:
        """Estimated end of all known jobs."""
        return None if self.end is None else self.at + timedelta(seconds=self.end.seconds)


class _Windows:
    """Measures the length of windows by the distance of their ends, if they are shorter than in the settings."""

    def __init__(self, length: timedelta) -> None:
        self.length = length
        self._ends: dict[tuple[str, str], float] = {}

    def note(self, pools: Iterable[PoolStatus]) -> None:
        now = monotonic()
        for one in (one for pool in pools for one in pool.credentials):
            for bucket in one.buckets:
                if bucket.resets_in_ms is not None:
                    ends, key = now + bucket.resets_in_ms / 1000, (one.name, bucket.name)
                    apart_s = ends - self._ends.get(key, ends)
                    self._ends[key] = ends
                    if apart_s > _JITTER_S:
                        self.length = min(self.length, timedelta(seconds=apart_s))


class Watcher:
    """Reads views of runs. Ended runs are not read again; jobs are counted only for runs with changed counters."""

    def __init__(
        self,
        database: Database,
        gate: Gate,
        limits: CredentialLimits,
        labels: Callable[[], Awaitable[Mapping[str, str]]],
        bucket_of: Callable[[str], str] = lambda _: "core",
        *,
        unit: ResourceUnit | None = None,
        planning_kinds: Collection[str] = (),
    ) -> None:
        self._database, self._gate, self._limits, self._labels = database, gate, limits, labels
        self._bucket_of, self._unit, self._planning_kinds = bucket_of, unit, planning_kinds
        self._runs: dict[int, Run] = {}
        self._kinds: dict[int, list[KindProgress]] = {}
        self._resources: dict[int, ResourceProgress] = {}
        self._failed_completions: Mapping[int, str] = {}
        self._pools: dict[str, PoolStatus] = {}
        self._names: Mapping[str, str] = {}
        self._calls: deque[tuple[float, int]] = deque()
        self._best_rate = 0.0
        self._windows = _Windows(limits.window)
        self._pause_s = _LEAST_PAUSE_S

    async def read_view(self, run_ids: Sequence[int]) -> View:
        """Read the progress of these runs. If a server is unavailable, the last known progress is returned."""
        began, failure = monotonic(), None
        try:
            await self._read(run_ids)
        except Unavailable as error:
            failure = str(error)
        self._pause_s = max(_LEAST_PAUSE_S, (monotonic() - began) / _SHARE_OF_TIME)
        runs = [self._runs[run_id] for run_id in run_ids if run_id in self._runs]
        rate, now = self._rate(runs), self._database.clock.now()
        return View(
            at=now,
            runs=runs,
            kinds=dict(self._kinds),
            resources=dict(self._resources),
            unit=self._unit,
            permits=[one for pool in self._pools.values() for one in permits_of(pool, self._names, now)],
            calls_per_s=rate,
            end=self._forecast_end(),
            failed_completions=self._failed_completions,
            error=failure,
        )

    async def pause(self, watch: Watch, run_ids: Sequence[int]) -> None:
        """Wait for the minimum time between two reads of progress, or until all runs have ended.

        A change ends the wait only if no run is active after it, so that the end is shown at once.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._pause_s
        while await self._is_any_active(run_ids):
            left_s = until - loop.time()
            if left_s <= 0 or not await watch.wait(within_s=left_s):
                return

    async def _is_any_active(self, run_ids: Sequence[int]) -> bool:
        try:
            return await self._database.read(is_any_active, run_ids)
        except Unavailable:  # the next view reports it
            return True

    async def _read(self, run_ids: Sequence[int]) -> None:
        """Read the given runs again, unless they have ended, and the state of their pools."""
        wanted = [run_id for run_id in run_ids if run_id not in self._runs or self._runs[run_id].status in ACTIVE_RUNS]
        if not wanted:
            return
        read = partial(_read, unit=self._unit, planning_kinds=self._planning_kinds)
        fresh, kinds, resources, failed_completions = await self._database.read(read, wanted, self._runs)
        self._failed_completions = {**self._failed_completions, **failed_completions}
        counted: defaultdict[int, list[KindProgress]] = defaultdict(list)
        for one in kinds:
            counted[one.run_id].append(one)
        self._runs |= {run.id: run for run in fresh}
        self._kinds |= counted
        self._resources |= resources
        pools = list(dict.fromkeys(run.pool for run in fresh if run.status in ACTIVE_RUNS))[:_MOST_POOLS]
        self._pools = {pool: await self._gate.status(pool) for pool in pools}
        self._windows.note(pools=self._pools.values())
        names = {one.name for pool in self._pools.values() for one in pool.credentials}
        if not names <= self._names.keys():
            self._names = {name: name for name in names} | dict(await self._labels())

    def _rate(self, runs: Sequence[Run]) -> float:
        """Calls per second, averaged over the last seconds."""
        now, calls = monotonic(), sum(run.calls for run in runs)
        self._calls.append((now, calls))
        while now - self._calls[0][0] > _RATE_OVER_S:
            self._calls.popleft()
        began, before = self._calls[0]
        rate = (calls - before) / (now - began) if now > began else 0.0
        if now - began >= _TRUSTED_AFTER_S:
            self._best_rate = max(self._best_rate, rate)
        return rate

    def _forecast_end(self) -> Forecast | None:
        """Estimate when the slowest bucket of all pools has processed the known jobs, at the best rate so far."""
        left: defaultdict[tuple[str, str], int] = defaultdict(int)
        for run in self._runs.values():
            for one in self._kinds.get(run.id, ()):
                left[run.pool, self._bucket_of(one.kind)] += one.total - one.ended
        limits = self._limits.model_copy(update={"window": self._windows.length})
        ends = [
            forecast(jobs, supplies(self._pools[pool], bucket, limits), calls_per_s=self._best_rate or None)
            for (pool, bucket), jobs in left.items()
            if jobs and pool in self._pools
        ]
        known = [end for end in ends if end is not None]
        return max(known, key=lambda end: end.seconds) if known and len(known) == len(ends) else None


def _read(
    tx: Transaction,
    run_ids: Sequence[int],
    known: Mapping[int, Run],
    *,
    unit: ResourceUnit | None,
    planning_kinds: Collection[str],
) -> tuple[list[Run], list[KindProgress], Mapping[int, ResourceProgress], Mapping[int, str]]:
    """Read runs, the jobs of changed runs, and failed completions in one transaction, so that they are consistent."""
    fresh = runs_by_id(tx, run_ids)
    moved = [run.id for run in fresh if run != known.get(run.id)]
    ended = [run.id for run in fresh if run.status not in OPEN_RUNS]
    kinds = kinds_of(tx, moved) if moved else []
    resources = resources_of(tx, moved, unit.prefix, besides=planning_kinds) if moved and unit is not None else {}
    return fresh, kinds, resources, find_failed_completions(tx, ended) if ended else {}
