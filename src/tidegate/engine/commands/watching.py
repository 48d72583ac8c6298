"""How runs stand, looked at again and again: what the live picture, the plain lines and the end are made of."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic

import msgspec

from tidegate.core.errors import Unavailable
from tidegate.engine.commands.forecast import Forecast, forecast
from tidegate.engine.commands.permits import Permits, permits_of, supplies
from tidegate.engine.completion import failed_completions as without_statistics
from tidegate.engine.lifecycle import ACTIVE_RUNS, OPEN_RUNS, RunState
from tidegate.engine.reports.progress import KindProgress, kinds_of, runs_by_id
from tidegate.engine.runs import Run
from tidegate.primitives.gate import CredentialLimits, Gate, PoolStatus
from tidegate.storage.sql import Database, Transaction

_RATE_OVER_S, _TRUSTED_AFTER_S = 15.0, 1.0
_MOST_POOLS = 20
"""Users with credentials of their own have pools of their own: as many are looked at."""
_SHARE_OF_TIME = 0.1
"""Looking may take no more of the time than this: a thousand runs are work for the database."""
_LEAST_PAUSE_S = 0.25
_JITTER_S = 0.5


class View(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand at one moment."""

    at: datetime
    runs: Sequence[Run]
    kinds: Mapping[int, Sequence[KindProgress]]
    """By run."""
    permits: Sequence[Permits] = ()
    calls_per_s: float = 0.0
    end: Forecast | None = None
    buried: Mapping[int, str] = {}
    """Runs whose statistics could not be computed, and why."""
    trouble: str | None = None
    """Why this is not up to date: a server does not answer."""

    @property
    def active(self) -> list[Run]:
        """The runs that are not over."""
        return [run for run in self.runs if run.status in ACTIVE_RUNS]

    @property
    def is_over(self) -> bool:
        """Whether no run has anything left to do."""
        return not self.active

    @property
    def is_stuck(self) -> bool:
        """Whether nothing happens any more, though not everything is over."""
        return bool(self.active) and all(run.id in self.buried for run in self.active)

    @property
    def is_growing(self) -> bool:
        """Whether repositories are still being found."""
        return any(run.status is RunState.PLANNING for run in self.runs)

    @property
    def ends_at(self) -> datetime | None:
        """When everything known so far is done."""
        return None if self.end is None else self.at + timedelta(seconds=self.end.seconds)


class _Windows:
    """How far apart windows end tells how long they are, where they are shorter than the settings say."""

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
    """Looks at runs; what is over is not read again, and jobs are counted where a run's counters moved."""

    def __init__(
        self,
        database: Database,
        gate: Gate,
        limits: CredentialLimits,
        labels: Callable[[], Awaitable[Mapping[str, str]]],
        bucket_of: Callable[[str], str] = lambda _: "core",
    ) -> None:
        self._database, self._gate, self._limits, self._labels = database, gate, limits, labels
        self._bucket_of = bucket_of
        self._runs: dict[int, Run] = {}
        self._kinds: dict[int, list[KindProgress]] = {}
        self._buried: Mapping[int, str] = {}
        self._pools: dict[str, PoolStatus] = {}
        self._names: Mapping[str, str] = {}
        self._calls: deque[tuple[float, int]] = deque()
        self._best_rate = 0.0
        self._windows = _Windows(limits.window)
        self._pause_s = _LEAST_PAUSE_S

    async def look(self, run_ids: Sequence[int]) -> View:
        """How these runs stand now; where a server is away, how they stood when it was last there."""
        began, trouble = monotonic(), None
        try:
            await self._read(run_ids)
        except Unavailable as error:
            trouble = str(error)
        self._pause_s = max(_LEAST_PAUSE_S, (monotonic() - began) / _SHARE_OF_TIME)
        runs = [self._runs[run_id] for run_id in run_ids if run_id in self._runs]
        rate, now = self._rate(runs), self._database.clock.now()
        return View(
            at=now,
            runs=runs,
            kinds=dict(self._kinds),
            permits=[one for pool in self._pools.values() for one in permits_of(pool, self._names, now)],
            calls_per_s=rate,
            end=self._foresee(),
            buried=self._buried,
            trouble=trouble,
        )

    async def pause(self) -> None:
        """However much happens, there is a moment between two looks."""
        await asyncio.sleep(self._pause_s)

    async def _read(self, run_ids: Sequence[int]) -> None:
        wanted = [run_id for run_id in run_ids if run_id not in self._runs or self._runs[run_id].status in ACTIVE_RUNS]
        if not wanted:
            return
        fresh, kinds, buried = await self._database.read(_read, wanted, self._runs)
        self._buried = {**self._buried, **buried}
        counted: defaultdict[int, list[KindProgress]] = defaultdict(list)
        for one in kinds:
            counted[one.run_id].append(one)
        self._runs |= {run.id: run for run in fresh}
        self._kinds |= counted
        pools = list(dict.fromkeys(run.pool for run in fresh if run.status in ACTIVE_RUNS))[:_MOST_POOLS]
        self._pools = {pool: await self._gate.status(pool) for pool in pools}
        self._windows.note(pools=self._pools.values())
        names = {one.name for pool in self._pools.values() for one in pool.credentials}
        if not names <= self._names.keys():
            self._names = {name: name for name in names} | dict(await self._labels())

    def _rate(self, runs: Sequence[Run]) -> float:
        """Calls in a second, over the last few."""
        now, calls = monotonic(), sum(run.calls for run in runs)
        self._calls.append((now, calls))
        while now - self._calls[0][0] > _RATE_OVER_S:
            self._calls.popleft()
        began, before = self._calls[0]
        rate = (calls - before) / (now - began) if now > began else 0.0
        if now - began >= _TRUSTED_AFTER_S:
            self._best_rate = max(self._best_rate, rate)
        return rate

    def _foresee(self) -> Forecast | None:
        """When the slowest of all buckets of all pools is done with what is known, at the best pace seen so far."""
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
    tx: Transaction, run_ids: Sequence[int], known: Mapping[int, Run]
) -> tuple[list[Run], list[KindProgress], Mapping[int, str]]:
    """Runs, the jobs of those that moved, and those without statistics, in one transaction, so that they agree."""
    fresh = runs_by_id(tx, run_ids)
    moved = [run.id for run in fresh if run != known.get(run.id)]
    ended = [run.id for run in fresh if run.status not in OPEN_RUNS]
    return fresh, kinds_of(tx, moved) if moved else [], without_statistics(tx, ended) if ended else {}
