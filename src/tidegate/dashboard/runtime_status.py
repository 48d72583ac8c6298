"""The runtime status: streams, timers, the gate, the outbox, processes with the leader, and circuit breakers."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidegate.dashboard.series import streams_of
from tidegate.engine.collection import Collection
from tidegate.engine.reports.overview import busy_pools
from tidegate.primitives.circuit_breaker import CircuitBreakerState
from tidegate.primitives.gate import PoolStatus
from tidegate.primitives.membership import Election
from tidegate.primitives.stream import Stream
from tidegate.primitives.stream.message import StreamStatus
from tidegate.primitives.stream.stream import is_waypoint, owner_of
from tidegate.runtime.waiting import DATABASE, VALKEY, PartialReads, UnreadPart
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import OutboxDepth
from tidegate.system import Context, OpenSystem


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is alive."""

    owner: str
    """The unique name of the process."""
    host: str
    pid: int | None
    lease_ms: int
    """Remaining milliseconds of its lease; without a heartbeat, it counts as dead afterwards."""
    is_leader: bool
    is_here: bool
    """Whether it is the process that answers this request."""


class ProcessList(msgspec.Struct, frozen=True, kw_only=True):
    """All processes that are alive."""

    members: list[ProcessView]
    jobs: list[StreamStatus]
    """State of the job streams, one per source."""

    @property
    def leader(self) -> str | None:
        """The name of the leader; None if there is none."""
        return next((member.owner for member in self.members if member.is_leader), None)

    @property
    def has_workers(self) -> bool:
        """Whether a process consumes jobs. True if another queue delivers jobs, because its consumers are unknown."""
        alive, names = (
            {member.owner for member in self.members},
            [each.name for status in self.jobs for each in status.consumers],
        )
        return any(is_waypoint(name) or owner_of(name) in alive for name in names)


class ProcessReader:
    """Reads the members of the deployment, and the consumers of the `streams` of jobs."""

    def __init__(self, parts: Context, streams: Sequence[Stream]) -> None:
        self._parts, self._streams = parts, streams
        self._election = Election(parts.valkey, parts.unit, parts.owner)

    async def read(self) -> ProcessList:
        """Read the current members."""
        members, leader, jobs = await asyncio.gather(
            self._parts.membership.members(),
            self._election.leader(),
            asyncio.gather(*(stream.status() for stream in self._streams)),
        )
        # A member with an ended lease is removed by the leader a little later.
        alive = [self._view(member.owner, member.remaining_ms, leader) for member in members if member.remaining_ms > 0]
        return ProcessList(members=sorted(alive, key=lambda each: each.owner), jobs=jobs)

    def _view(self, owner: str, remaining_ms: int, leader: str | None) -> ProcessView:
        host, _, rest = owner.partition(".")
        pid = rest.partition(".")[0]
        return ProcessView(
            owner=owner,
            host=host,
            pid=int(pid) if pid.isdecimal() else None,
            lease_ms=remaining_ms,
            is_leader=owner == leader,
            is_here=owner == self._parts.owner,
        )


_MOST_POOLS = 20


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of a stream."""

    name: str
    pending: int
    """Messages delivered to it and not acknowledged."""
    idle_ms: int
    """Milliseconds since its last read."""


class StreamView(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a stream."""

    name: str
    depth: int
    """Messages that are not acknowledged."""
    pending: int
    """Of these, messages that were delivered to a consumer."""
    lag: int
    """Of these, messages that were not delivered yet."""
    dead: int
    """Dead letters, which are not part of the depth."""
    consumers: list[ConsumerView]


class TimersView(msgspec.Struct, frozen=True, kw_only=True):
    """Timers of one queue."""

    name: str
    count: int
    next_at: datetime | None
    """When the first timer is due; null if there is none, or if that is unknown."""


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool of credentials that active runs use."""

    pool: str
    waiting: dict[str, int]
    """Jobs that wait for a permit, by kind of call."""
    credentials: int
    in_flight: int
    """Calls in progress."""


class GateView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the gate, in which jobs wait for permits."""

    waiting: int
    planned: int
    """Delayed jobs, and times at which a pool can dispatch again."""
    blocked: int
    """Blocked credentials, and blocked buckets of credentials."""
    pools: list[PoolView]
    """Pools of active runs, at most twenty."""


class OutboxView(msgspec.Struct, frozen=True, kw_only=True):
    """Committed events that are not handled yet."""

    pending: int
    dead: int
    oldest_at: datetime | None
    """When the oldest waiting event was committed."""


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """State of one circuit breaker of this process."""

    name: str
    state: CircuitBreakerState


class RuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime status. Parts that could not be read are null; `unknown` has the reasons."""

    at: datetime
    streams: list[StreamView] | None
    timers: list[TimersView] | None
    gate: GateView | None
    outbox: OutboxView | None
    processes: list[ProcessView] | None
    breakers: list[BreakerView]
    unknown: list[UnreadPart]


class RuntimeStatusReader:
    """Reads the runtime status. Parts that cannot be read in time are null."""

    def __init__(self, collection: Collection, systems: Sequence[OpenSystem]) -> None:
        self._collection, self._parts = collection, collection.parts
        self._processes_reader = ProcessReader(collection.parts, collection.job_streams)
        self._all_streams = streams_of(collection, systems)
        self._breakers = [each for system in systems for each in system.breakers()]

    async def read(self) -> RuntimeStatus:
        """Read the current state."""
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
        return list(await asyncio.gather(*(_stream(stream) for stream in self._all_streams)))

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
        shards, statuses = await asyncio.gather(
            asyncio.gather(*(gate.shard_status() for gate in gates)),
            asyncio.gather(*(self._collection.status(pool) for pool in pools)),
        )
        return GateView(
            waiting=sum(shard_status.waiting for shard_status in shards),
            planned=sum(shard_status.planned for shard_status in shards),
            blocked=sum(shard_status.blocked for shard_status in shards),
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
