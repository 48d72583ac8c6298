"""Jobs that wait for a quota: the database knows how many, and the gate why, and until when."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.api.run_details import Wait, waits_of
from tidegate.engine.credentials import Credential
from tidegate.engine.credentials.records import everything
from tidegate.engine.reports.states import PoolQueue, queues
from tidegate.primitives.gate import PoolStatus
from tidegate.runtime.outage import Outage
from tidegate.storage.sql import Database, Transaction

log = get_logger(__name__)
_outage = Outage("http.gate")

_GATE_WITHIN_S = 2.0


class WaitingPool(PoolQueue, frozen=True, kw_only=True):
    """Jobs that wait in one pool, and why."""

    buckets: dict[str, int] | None
    """Jobs that wait for a permit by kind of call; null where the gate cannot be asked."""
    waits: list[Wait] | None
    """What they wait for, and until when; empty where a call could be made at once, null where nobody knows."""


class WaitingReport(msgspec.Struct, frozen=True, kw_only=True):
    """Pools in which jobs wait, where most wait first."""

    pools: list[WaitingPool]


class Pools(Protocol):
    """Knows what waits in pools: a gate, or the gates of all sources."""

    async def status(self, pool: str) -> PoolStatus:
        """What waits in a pool, and what its credentials may do."""
        ...


async def waiting_report(database: Database, gate: Pools | None, limit: int = 20) -> WaitingReport:
    """Count what waits, and ask the gate why; a gate that is away, or None, costs only the reasons."""
    found, known = await database.read(_read, limit)
    told = [] if gate is None else await _reasons(found, known, database, gate)
    return WaitingReport(pools=[*told, *(_joined(queue, None, None) for queue in found[len(told) :])])


async def _reasons(
    found: Sequence[PoolQueue], known: Sequence[Credential], database: Database, gate: Pools
) -> list[WaitingPool]:
    """The first of these pools, as many as could be asked about in time."""
    told: list[WaitingPool] = []
    try:
        async with asyncio.timeout(_GATE_WITHIN_S):
            for queue in found:
                status = await gate.status(queue.pool)
                waits = waits_of(status, known, database.clock.now())
                told.append(_joined(queue, {name: jobs for name, jobs in status.waiting.items() if jobs}, waits))
    except Unavailable as error:
        _outage.note(error)
    except (TidegateError, TimeoutError) as error:
        log.warning("http.gate_unknown", pool=found[len(told)].pool, error=str(error) or "no answer in time")
    return told


def _joined(queue: PoolQueue, buckets: dict[str, int] | None, waits: list[Wait] | None) -> WaitingPool:
    return WaitingPool(**msgspec.structs.asdict(queue), buckets=buckets, waits=waits)


def _read(tx: Transaction, limit: int) -> tuple[list[PoolQueue], list[Credential]]:
    found = queues(tx, limit)
    return found, [stored.credential for stored in everything(tx)] if found else []
