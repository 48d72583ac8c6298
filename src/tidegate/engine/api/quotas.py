"""`/v1/quotas`: the allowance of each credential, and why jobs wait.

Numbers of waiting jobs are read from SQL, reasons and times from the gate.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Protocol
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.api.run_details import Limit, Wait, moment, waits_of
from tidegate.engine.collection import Collection
from tidegate.engine.credentials import Credential
from tidegate.engine.credentials.records import everything
from tidegate.engine.reports.states import PoolQueue, queues
from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route
from tidegate.primitives.gate import BucketStatus, CredentialStatus, PoolStatus
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


TAG = "credentials"


class PoolFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    pool: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """Only this pool."""
    after: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """Only pools after this name."""
    limit: Limit = 50


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that the upstream counts together."""

    name: str
    limit: int | None
    remaining: int | None
    """The remaining calls that the upstream reported last; null before the first call."""
    left: int | None
    """`remaining` minus the calls in flight and the calls with unknown outcome."""
    resets_at: datetime | None
    opens_at: datetime | None
    """When the next call can be made; null if a call can be made now."""
    reason: str | None
    """Why no call can be made now: blocked, retired, concurrency, minute, probing or exhausted."""


class AllowanceDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstream limits: an account or an installation. All its credentials share the allowance."""

    name: str
    credentials: list[str]
    """Names of the credentials that share the allowance."""
    in_flight: int
    concurrency: int
    is_retired: bool
    """Whether the upstream rejects its secrets."""
    blocked_until: datetime | None
    """Until when the upstream asked for a pause."""
    buckets: list[Bucket]


class PoolQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The allowances of the credentials that serve the same runs."""

    pool: str
    waiting: dict[str, int]
    """Jobs that wait for a permit, by bucket."""
    allowances: list[AllowanceDetails]


class QuotaPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of pools, ordered by name."""

    pools: list[PoolQuota]
    next: str | None
    """URL of the next page; null on the last page."""


class QuotaRoutes:
    """The handler of the route `/v1/quotas`."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._clock = collection.parts.database.clock

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of quotas."""
        return [route("GET", "/v1/quotas", self.list_quotas, TAG)]

    async def list_quotas(self, query: PoolFilter) -> QuotaPage:
        """List the allowance of each credential and the number of waiting jobs. Secrets are not included."""
        known = await self._collection.list_credentials()
        pools = sorted({*self._collection.pools, *(each.pool for each in known)})
        wanted = [pool for pool in pools if query.pool in (None, pool) and (query.after is None or pool > query.after)]
        now = self._clock.now()
        shown = [_quota(pool, await self._collection.status(pool), known, now) for pool in wanted[: query.limit]]
        more = len(wanted) > query.limit
        link = f"/v1/quotas?{urlencode({'after': shown[-1].pool, 'limit': query.limit})}" if more else None
        return QuotaPage(pools=shown, next=link)


def _quota(pool: str, status: PoolStatus, known: Sequence[Credential], now: datetime) -> PoolQuota:
    allowances = [_allowance(one, known, now) for one in status.credentials]
    return PoolQuota(pool=pool, waiting=status.waiting, allowances=allowances)


def _allowance(one: CredentialStatus, known: Sequence[Credential], now: datetime) -> AllowanceDetails:
    return AllowanceDetails(
        name=one.name,
        credentials=[each.name for each in known if each.allowance == one.name],
        in_flight=one.in_flight,
        concurrency=one.concurrency,
        is_retired=one.retired,
        blocked_until=_after(one.blocked_in_ms or None, now),
        buckets=[_bucket(each, now) for each in one.buckets],
    )


def _bucket(one: BucketStatus, now: datetime) -> Bucket:
    return Bucket(
        name=one.name,
        limit=one.limit,
        remaining=one.remaining,
        left=None if one.remaining is None else max(0, one.remaining - one.held - one.lost),
        resets_at=_after(one.resets_in_ms, now),
        opens_at=_after(one.opens_in_ms or None, now),
        reason=one.reason,
    )


def _after(in_ms: int | None, now: datetime) -> datetime | None:
    return None if in_ms is None else moment(now, in_ms)
