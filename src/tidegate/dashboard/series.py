"""Reads the values of which the dashboard has a history; shared by the samples in memory and the points in SQL.

The rate of finished jobs is computed from the counters of changed runs.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from tidegate.engine.collection import Collection
from tidegate.engine.credentials import Credential
from tidegate.engine.credentials.records import everything
from tidegate.engine.reports.gauges import RunFigures
from tidegate.engine.reports.overview import EndedJobs
from tidegate.primitives.gate import CredentialStatus
from tidegate.primitives.stream import Stream
from tidegate.runtime.waiting import DATABASE, VALKEY, PartialReads
from tidegate.storage.sql.outbox import OutboxDepth
from tidegate.system import OpenSystem, Sample

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

    def mark_changed(self, moved: Iterable[int] | None) -> None:
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


_MOST_POOLS = 20


class SeriesReader:
    """Reads streams, timers, quotas, and the series of the open systems."""

    def __init__(self, installation: Collection, systems: Sequence[OpenSystem]) -> None:
        self._installation, self._parts = installation, installation.parts
        self._streams = streams_of(installation, systems)
        self._series = [each for system in systems for each in system.series()]

    async def read(self, reads: PartialReads) -> dict[str, Sample]:
        """All values that can be read now."""
        found = await asyncio.gather(
            reads.read(VALKEY, self._runtime(), "runtime"),
            reads.read(f"{DATABASE} or {VALKEY}", self._quotas(), "quotas"),
            *(reads.read(each.server, each.read(), each.name) for each in self._series),
        )
        return {name: sample for part in found for name, sample in (part or {}).items()}

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


def streams_of(installation: Collection, systems: Sequence[OpenSystem]) -> list[Stream]:
    """The streams of the collection and of the open systems."""
    further = (each for system in systems for each in system.recoverable())
    return [*installation.streams, *(each for each in further if isinstance(each, Stream))]


def work_samples(runs: RunFigures, depth: OutboxDepth, rates: JobRates | None) -> dict[str, Sample]:
    """The values of runs, jobs and events; without rates if none are known."""
    found = {
        "runs/active": Sample(runs.active, "runs"),
        "jobs/pending": Sample(runs.pending, "jobs"),
        "outbox/pending": Sample(depth.pending, "events"),
    }
    if rates is not None:
        found["jobs/done"] = Sample(round(rates.done, 2), "jobs/s")
        found["jobs/failed"] = Sample(round(rates.failed, 2), "jobs/s")
    return found


def _left(one: CredentialStatus, known: Sequence[Credential]) -> dict[str, Sample]:
    """The remaining quota of a credential per bucket, as far as the upstream reported it."""
    name = ", ".join(each.name for each in known if each.allowance == one.name) or one.name
    return {
        f"quota/{name}/{bucket.name}": Sample(max(0, bucket.remaining - bucket.held - bucket.lost), "calls")
        for bucket in one.buckets
        if bucket.remaining is not None
    }
