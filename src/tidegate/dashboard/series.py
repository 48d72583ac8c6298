"""Reads the values of which the dashboard has a history; shared by the samples in memory and the points in SQL."""

import asyncio
from collections.abc import Sequence

from tidegate.dashboard.job_rates import JobRates
from tidegate.engine.collection import Collection
from tidegate.engine.credentials import Credential
from tidegate.engine.credentials.records import everything
from tidegate.engine.reports.gauges import RunFigures
from tidegate.primitives.gate import CredentialStatus
from tidegate.primitives.stream import Stream
from tidegate.runtime.waiting import DATABASE, VALKEY, PartialReads
from tidegate.storage.sql.outbox import OutboxDepth
from tidegate.system import OpenSystem, Sample

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
