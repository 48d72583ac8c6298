"""Jobs that wait for a quota: the numbers are read from SQL, the reasons and times from the gate."""

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
    """The waiting jobs of a pool, with the reasons."""

    buckets: dict[str, int] | None
    """Jobs that wait for a permit, by bucket; null if the gate could not be asked."""
    waits: list[Wait] | None
    """What they wait for, and until when. Empty if a call can be made now; null if the gate could not be asked."""


class WaitingReport(msgspec.Struct, frozen=True, kw_only=True):
    """Pools with waiting jobs, the longest queue first."""

    pools: list[WaitingPool]


class Pools(Protocol):
    """Reports the status of pools: implemented by a gate, and by the gates of all sources together."""

    async def status(self, pool: str) -> PoolStatus:
        """The waiting jobs of a pool and the allowances of its credentials."""
        ...


async def waiting_report(database: Database, gate: Pools | None, limit: int = 20) -> WaitingReport:
    """Count waiting jobs and read the reasons from the gate.

    If the gate is None or unavailable, the report contains the numbers without the reasons.
    """
    found, known = await database.read(_read, limit)
    reported = [] if gate is None else await _reasons(found, known, database, gate)
    return WaitingReport(pools=[*reported, *(_joined(queue, None, None) for queue in found[len(reported) :])])


async def _reasons(
    found: Sequence[PoolQueue], known: Sequence[Credential], database: Database, gate: Pools
) -> list[WaitingPool]:
    """The report for the first of these pools, for as many as the gate answered in time."""
    reported: list[WaitingPool] = []
    try:
        async with asyncio.timeout(_GATE_WITHIN_S):
            for queue in found:
                status = await gate.status(queue.pool)
                waits = waits_of(status, known, database.clock.now())
                reported.append(_joined(queue, {name: jobs for name, jobs in status.waiting.items() if jobs}, waits))
    except Unavailable as error:
        _outage.note(error)
    except (TidegateError, TimeoutError) as error:
        log.warning("http.gate_unknown", pool=found[len(reported)].pool, error=str(error) or "no answer in time")
    return reported


def _joined(queue: PoolQueue, buckets: dict[str, int] | None, waits: list[Wait] | None) -> WaitingPool:
    return WaitingPool(**msgspec.structs.asdict(queue), buckets=buckets, waits=waits)


def _read(tx: Transaction, limit: int) -> tuple[list[PoolQueue], list[Credential]]:
    found = queues(tx, limit)
    return found, [stored.credential for stored in everything(tx)] if found else []
