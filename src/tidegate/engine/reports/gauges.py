"""Gauges of the whole deployment, computed at scrape time: runs, jobs, streams, delays, blocked tokens.

All servers are queried concurrently, each with a deadline. The figures of one that is unavailable are NaN, so that no
alert compares an old value; the others are not affected.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import case, func, or_, select

from tidegate.core.clock import milliseconds, monotonic_ms
from tidegate.core.telemetry import metrics
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.metrics import COLLECTION_RUNS_ACTIVE, PAGE_JOBS_FAILED_RATE, PAGE_JOBS_PENDING
from tidegate.engine.tables import collection_runs
from tidegate.primitives.gate import Gate
from tidegate.primitives.stream import Stream
from tidegate.primitives.timers import Timers
from tidegate.runtime.scrape_gauges import WITHIN_S, compute_gauges
from tidegate.storage.sql import Database, Transaction, outbox

_RECENT = timedelta(minutes=15)
_LOOKED_AT = 1000
"""How many of the newest runs are searched for recently ended ones, so that the cost does not grow with the history."""


@dataclass(frozen=True)
class RunFigures:
    """Totals of runs and their jobs."""

    active: int
    pending: int
    """Jobs of active runs that have not ended."""
    failed: int
    """Failed jobs of runs that are active or ended recently."""
    ended: int

    @property
    def failed_rate(self) -> float:
        """Failed jobs among those that ended."""
        return self.failed / self.ended if self.ended else 0.0


@dataclass(frozen=True)
class _Source:
    read: Callable[[], Awaitable[None]]
    gauges: Sequence[metrics.Gauge]
    """The gauges that `read` sets, with labels of this deployment."""


class EngineGauges:
    """Computes the gauges before they are scraped."""

    def __init__(
        self,
        database: Database,
        gates: Sequence[Gate],
        timers: Sequence[Timers],
        streams: Sequence[Stream],
        *,
        fresh_for: timedelta = timedelta(milliseconds=1500),
    ) -> None:
        self._database, self._gates, self._timers, self._streams = database, gates, timers, streams
        self._fresh_ms = milliseconds(fresh_for)
        self._refreshed_ms = -math.inf
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Query every server, unless the figures are still fresh. Never raises; bounded by a deadline.

        Concurrent callers share one refresh.
        """
        async with self._refreshing:
            if monotonic_ms() - self._refreshed_ms < self._fresh_ms:
                return
            sources = self._sources().items()
            await asyncio.gather(*(compute_gauges(name, source.read, source.gauges) for name, source in sources))
            self._refreshed_ms = monotonic_ms()

    def _sources(self) -> Mapping[str, _Source]:
        """Return the sources of gauges, each with the metrics that it sets."""
        runs = (COLLECTION_RUNS_ACTIVE, PAGE_JOBS_PENDING, PAGE_JOBS_FAILED_RATE)
        events = (metrics.OUTBOX_PENDING, metrics.OUTBOX_DEAD, metrics.OUTBOX_OLDEST)
        streams = (
            metrics.STREAM_DEPTH,
            metrics.STREAM_PENDING_COUNT,
            metrics.STREAM_CONSUMER_LAG,
            metrics.STREAM_DEAD_LETTERS,
        )
        gate = (
            metrics.GATE_WAITING,
            metrics.DELAYED_QUEUE_SIZE,
            metrics.RATE_LIMIT_TOKENS_BLOCKED,
            metrics.RATE_LIMIT_LONGEST_BLOCK,
        )
        return {
            "database": _Source(self._look_at_runs, runs),
            "outbox": _Source(self._look_at_events, events),
            "streams": _Source(self._look_at_streams, streams),
            "gate": _Source(self._look_at_gate, gate),
        }

    async def _look_at_runs(self) -> None:
        figures = await self._database.read(count_runs, timeout=timedelta(seconds=WITHIN_S))
        COLLECTION_RUNS_ACTIVE.set(figures.active)
        PAGE_JOBS_PENDING.set(figures.pending)
        PAGE_JOBS_FAILED_RATE.set(figures.failed_rate)

    async def _look_at_events(self) -> None:
        depth = await self._database.read(outbox.depth, timeout=timedelta(seconds=WITHIN_S))
        waits = timedelta() if depth.oldest is None else self._database.clock.now() - depth.oldest
        metrics.OUTBOX_PENDING.set(depth.pending)
        metrics.OUTBOX_DEAD.set(depth.dead)
        metrics.OUTBOX_OLDEST.set(max(0.0, waits.total_seconds()))

    async def _look_at_streams(self) -> None:
        for stream in self._streams:
            await stream.status()  # sets the gauges of the stream

    async def _look_at_gate(self) -> None:
        for gate in self._gates:
            await gate.shard_status()  # sets the gauges of the gate
        for timers in self._timers:
            metrics.DELAYED_QUEUE_SIZE.labels(timers.name).set((await timers.status()).count)


def count_runs(tx: Transaction) -> RunFigures:
    """The figures of all runs, in two queries that indexes serve."""
    run = collection_runs.c
    ended = run.succeeded_jobs + run.failed_jobs + run.canceled_jobs
    active = select(func.count(), func.coalesce(func.sum(run.total_jobs - ended), 0))
    runs, pending = tx.execute(active.where(run.status.in_(ACTIVE_RUNS))).one()
    newest = select(func.coalesce(func.max(run.id), 0)).scalar_subquery()
    counts = or_(run.status.in_(ACTIVE_RUNS), run.completed_at >= tx.now - _RECENT)
    tried = case((counts, run.succeeded_jobs + run.failed_jobs), else_=0)
    failed = case((counts, run.failed_jobs), else_=0)
    lately = select(func.coalesce(func.sum(failed), 0), func.coalesce(func.sum(tried), 0))
    failures, tries = tx.execute(lately.where(run.id > newest - _LOOKED_AT)).one()
    return RunFigures(active=runs, pending=int(pending), failed=int(failures), ended=int(tries))
