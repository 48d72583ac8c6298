"""What carries the work: streams, timers, the gate, the outbox, processes and breakers."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidegate.dashboard.processes import ProcessReader, ProcessView
from tidegate.engine.collection import Collection
from tidegate.engine.reports.overview import busy_pools
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerState
from tidegate.primitives.gate import PoolStatus
from tidegate.primitives.stream import Stream
from tidegate.runtime.partial_reads import DATABASE, VALKEY, PartialReads, UnreadPart
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import OutboxDepth
from tidegate.systems.snapshots.service import Snapshots

_MOST_POOLS = 20


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """One who takes messages."""

    name: str
    pending: int
    """Messages in its hands."""
    idle_ms: int
    """Since it last asked for some."""


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """A stream at one moment."""

    name: str
    depth: int
    """Messages that are not done."""
    pending: int
    """Of these, in somebody's hands."""
    lag: int
    """Of these, delivered to nobody yet."""
    dead: int
    """Dead letters; not part of the depth."""
    consumers: list[ConsumerView]


class TimersView(msgspec.Struct, frozen=True, kw_only=True):
    """What is to happen later."""

    name: str
    count: int
    next_at: datetime | None
    """When the first is due; null where there is none, or nobody keeps that."""


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of credentials that active runs use."""

    pool: str
    waiting: dict[str, int]
    """Jobs that wait for a permit, by kind of call."""
    credentials: int
    in_flight: int
    """Calls under way."""


class GateView(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs wait for permits."""

    waiting: int
    planned: int
    """Jobs that are delayed, and gates that will open."""
    blocked: int
    """Credentials, or kinds of calls of theirs, that may make no call at present."""
    pools: list[PoolView]
    """Those of active runs, twenty at most."""


class OutboxView(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were committed and are not handled."""

    pending: int
    dead: int
    oldest_at: datetime | None
    """Since when the first of those that wait does."""


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether this process spares a server."""

    name: str
    state: CircuitBreakerState


class RuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What carries the work. What could not be found out is null, and `unknown` says why."""

    at: datetime
    streams: list[StreamView] | None
    timers: list[TimersView] | None
    gate: GateView | None
    outbox: OutboxView | None
    processes: list[ProcessView] | None
    breakers: list[BreakerView]
    unknown: list[UnreadPart]


class RuntimeStatusReader:
    """Reads the status. What cannot be read in time is null in it."""

    def __init__(self, collection: Collection, snapshots: Snapshots | None) -> None:
        self._collection, self._parts = collection, collection.parts
        self._processes_reader = ProcessReader(collection.parts, collection.job_streams)
        self.streams: Sequence[Stream] = [
            *collection.streams,
            *(snapshots.recoverable if snapshots is not None else ()),
        ]
        self._breakers: Sequence[CircuitBreaker] = () if snapshots is None else snapshots.breakers

    async def read(self) -> RuntimeStatus:
        """The current state."""
        reads, database = PartialReads(), self._parts.database
        streams, timers, gate, depth, processes = await asyncio.gather(
            reads.read(VALKEY, self._streams(), "streams"),
            reads.read(VALKEY, self._timers(), "timers"),
            reads.read(f"{VALKEY} or {DATABASE}", self._gate(), "gate"),
            reads.read(DATABASE, database.read(outbox.depth), "outbox"),
            reads.read(VALKEY, self._processes_reader.read(), "processes"),
        )
        return RuntimeStatus(
            at=database.clock.now(),
            streams=streams,
            timers=timers,
            gate=gate,
            outbox=None if depth is None else _outbox(depth),
            processes=None if processes is None else processes.members,
            breakers=[BreakerView(name=each.name, state=each.state) for each in self._breakers],
            unknown=reads.unknown,
        )

    async def _streams(self) -> list[StreamView]:
        return list(await asyncio.gather(*(_stream(stream) for stream in self.streams)))

    async def _timers(self) -> list[TimersView]:
        found: list[TimersView] = []
        for name, parts in self._collection.contexts.items():
            alarms, (_, planned) = await asyncio.gather(parts.timers.status(), parts.gate.lengths())
            part = f"{name}." if name else ""
            found += [
                TimersView(name=f"{part}alarms", count=alarms.count, next_at=alarms.earliest),
                TimersView(name=f"{part}gate", count=planned, next_at=None),
            ]
        return found

    async def _gate(self) -> GateView:
        pools = await self._parts.database.read(_pools)
        gates = [parts.gate for parts in self._collection.contexts.values()]
        censuses, statuses = await asyncio.gather(
            asyncio.gather(*(gate.census() for gate in gates)),
            asyncio.gather(*(self._collection.status(pool) for pool in pools)),
        )
        return GateView(
            waiting=sum(census.waiting for census in censuses),
            planned=sum(census.planned for census in censuses),
            blocked=sum(census.blocked for census in censuses),
            pools=[_pool(pool, status) for pool, status in zip(pools, statuses, strict=True)],
        )


async def _stream(stream: Stream) -> StreamView:
    status = await stream.status()
    consumers = [ConsumerView(name=name, pending=held, idle_ms=idle) for name, held, idle in status.consumers]
    return StreamView(
        name=stream.name,
        depth=status.depth,
        pending=status.pending,
        lag=status.lag,
        dead=status.dead,
        consumers=consumers,
    )


def _outbox(depth: OutboxDepth) -> OutboxView:
    return OutboxView(pending=depth.pending, dead=depth.dead, oldest_at=depth.oldest)


def _pool(pool: str, status: PoolStatus) -> PoolView:
    return PoolView(
        pool=pool,
        waiting={bucket: jobs for bucket, jobs in sorted(status.waiting.items()) if jobs},
        credentials=len(status.credentials),
        in_flight=sum(each.in_flight for each in status.credentials),
    )


def _pools(tx: Transaction) -> list[str]:
    return busy_pools(tx, _MOST_POOLS)
