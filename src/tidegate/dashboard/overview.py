"""The overview: active runs, waiting jobs with reasons, failures, and conditions that need an operator."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from tidegate import __version__
from tidegate.dashboard.attention import MOST_FAILED, Attention, DeploymentState, PoolWait, find_attention, pool_waits
from tidegate.dashboard.dead_letters import DeadLetterCount, DeadLetterCounter
from tidegate.dashboard.runtime_status import ProcessList, ProcessReader
from tidegate.engine.collection import Collection
from tidegate.engine.credentials import Credential
from tidegate.engine.credentials.records import everything
from tidegate.engine.reports import overview
from tidegate.engine.reports.overview import FailedJob, JobCounts, RunCounts
from tidegate.engine.runs import Run
from tidegate.primitives.circuit_breaker import CircuitBreakerState
from tidegate.runtime.waiting import DATABASE, VALKEY, PartialReads, UnreadPart
from tidegate.storage.sql import Transaction
from tidegate.system import OpenSystem

_MOST_ACTIVE = 20
_MOST_POOLS = 20
"""Maximum number of pools with waiting jobs to read, since each pool needs a request to the server."""


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A required server: the database or Valkey."""

    name: Literal["database", "valkey"]
    product: str
    address: str
    """Address of the server, without password."""
    is_up: bool
    reason: str | None
    """Why the server is unavailable."""
    breaker: CircuitBreakerState | None
    """The state of this process's circuit breaker for the server; null if it has none."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the deployment. Parts that could not be read are null; `unknown` has the reasons."""

    at: datetime
    version: str
    servers: list[ServerView]
    leader: str | None
    """The leader; null if there is none, or if that is unknown."""
    processes: int | None
    """Number of processes that are alive."""
    runs: RunCounts | None
    jobs: JobCounts | None
    active: list[Run] | None
    """Active runs, newest first, at most twenty."""
    waits: list[PoolWait] | None
    """Why jobs are waiting, the earliest to end first."""
    failed: list[FailedJob] | None
    """The most recently failed jobs, at most ten."""
    dead: list[DeadLetterCount] | None
    attention: list[Attention]
    """Conditions that need an operator, the most severe first."""
    unknown: list[UnreadPart]


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the overview that is read from SQL."""

    runs: RunCounts
    jobs: JobCounts
    active: list[Run]
    failed: list[FailedJob]
    pools: list[str]
    credentials: Sequence[Credential]


class OverviewReader:
    """Reads the overview. Parts that cannot be read in time are null."""

    def __init__(self, collection: Collection, systems: Sequence[OpenSystem], dead: DeadLetterCounter) -> None:
        self._collection, self._parts, self._dead = collection, collection.parts, dead
        self._processes_reader = ProcessReader(self._parts, collection.job_streams)
        self._breakers = {each.name: each for system in systems for each in system.breakers()}

    async def read(self) -> Overview:
        """Read the current state."""
        reads, database = PartialReads(), self._parts.database
        # At the same time: a server that does not answer delays the overview once.
        (work, waits), processes, dead = await asyncio.gather(
            self._work(reads),
            reads.read(VALKEY, self._processes_reader.read(), "leader", "processes"),
            self._dead.counts(reads),
        )
        servers = [self._database_view(work), self._valkey_view(processes)]
        cells = self._collection.cells.values()
        state = DeploymentState(
            now=database.clock.now(),
            away=[server.name for server in servers if not server.is_up],
            processes=processes,
            runs=None if work is None else work.runs,
            jobs=None if work is None else work.jobs,
            failed=[] if work is None else work.failed,
            waits=waits,
            credentials=None if work is None else work.credentials,
            audiences={cell.plugin.name: cell.stored.audience for cell in cells if cell.stored is not None},
            awaited_tokens={
                cell.plugin.name: cell.token.reason
                for cell in cells
                if cell.token is not None and cell.token.is_awaited
            },
            dead=dead,
            open_breakers=[
                each.name for each in self._breakers.values() if each.state is not CircuitBreakerState.CLOSED
            ],
        )
        return Overview(
            at=state.now,
            version=__version__,
            servers=servers,
            leader=None if processes is None else processes.leader,
            processes=None if processes is None else len(processes.members),
            runs=state.runs,
            jobs=state.jobs,
            active=None if work is None else work.active,
            waits=waits,
            failed=None if work is None else work.failed,
            dead=dead,
            attention=find_attention(state),
            unknown=reads.unknown,
        )

    async def _work(self, reads: PartialReads) -> tuple[_Work | None, list[PoolWait] | None]:
        """Read the part from SQL, then from the gate what its active runs wait for."""
        work = await reads.read(
            DATABASE, self._parts.database.read(_read), *("runs", "jobs", "active", "failed", "waits")
        )
        if work is None:
            return None, None
        now = self._parts.database.clock.now()
        asked = asyncio.gather(*(self._collection.status(pool) for pool in work.pools))
        # SQL knows the pools, the gate knows why they wait; so this read comes second.
        statuses = await reads.read(VALKEY, asked, "waits")
        if statuses is None:
            return work, None
        return work, pool_waits(dict(zip(work.pools, statuses, strict=True)), work.credentials, now)

    def _database_view(self, work: _Work | None) -> ServerView:
        database = self._parts.database
        return self._server("database", database.dialect, database.name, is_up=work is not None)

    def _valkey_view(self, processes: ProcessList | None) -> ServerView:
        valkey = self._parts.valkey
        product = f"{valkey.info.product} {valkey.info.version}"
        return self._server("valkey", product, valkey.address, is_up=processes is not None)

    def _server(self, name: Literal["database", "valkey"], product: str, address: str, *, is_up: bool) -> ServerView:
        breaker = self._breakers.get(name)
        return ServerView(
            name=name,
            product=product,
            address=address,
            is_up=is_up,
            reason=None if is_up else "it does not answer",
            breaker=None if breaker is None else breaker.state,
        )


def _read(tx: Transaction) -> _Work:
    return _Work(
        runs=overview.count_runs(tx),
        jobs=overview.count_jobs(tx),
        active=overview.newest_active(tx, _MOST_ACTIVE),
        failed=overview.latest_failures(tx, MOST_FAILED),
        pools=overview.busy_pools(tx, _MOST_POOLS),
        credentials=[stored.credential for stored in everything(tx)],
    )
