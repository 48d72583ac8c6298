"""The dashboard topic `snapshots`: calls against their limits, freshness, and waiting refreshes.

Freshness is measured on a random sample with an equal share for each kind (see `sampling`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import func, select

from tidegate.core.arguments import require_positive
from tidegate.core.clock import milliseconds, monotonic_ms
from tidegate.core.priority import Priority
from tidegate.primitives.limiter import LimiterStatus
from tidegate.primitives.limiter.settings import ALL, Limit, Rate
from tidegate.runtime.waiting import DATABASE, TRANSPORT, VALKEY, PartialReads, UnreadPart
from tidegate.storage.sql import Transaction
from tidegate.system import Sample
from tidegate.systems.snapshots.sampling import random_place, sample
from tidegate.systems.snapshots.service import Snapshots
from tidegate.systems.snapshots.store import FAILED
from tidegate.systems.snapshots.tables import snapshot_status, snapshots
from tidegate.systems.snapshots.transports.protocol import GROUPS

_MOST_FAILED = 10_000
_c, _status = snapshots.c, snapshot_status.c


class FreshnessSample(msgspec.Struct, frozen=True, kw_only=True):
    """Freshness of a sample of snapshots, as readers would see it now."""

    sampled: int
    """Number of subjects in the sample."""
    is_all: bool
    """Whether the sample has all subjects."""
    fresh: int
    stale: int
    updating: int
    """Subjects without a snapshot."""
    not_found: int
    """Subjects that the upstream does not have."""
    failed: int
    """Subjects with a last refresh that failed permanently, over all priorities; at most 10,000 are counted."""


def freshness_mix(
    tx: Transaction, ttls: Mapping[str, timedelta], most: int = 1000, start: int | None = None
) -> FreshnessSample:
    """Sample up to `most` subjects, an equal share for each kind.

    `start`: the position at which the sample begins; random by default.
    """
    require_positive("most", most)
    share = max(1, most // max(1, len(ttls)))
    start = random_place() if start is None else start
    counts = {"fresh": 0, "stale": 0, "updating": 0, "not_found": 0}
    sampled, is_all = 0, True
    for kind, ttl in ttls.items():
        found = sample(tx, kind, (_c.size, _c.last_checked_at, _c.missing_since), share, start)
        for size, checked_at, missing_since in found.rows:
            counts[_freshness_of(size, checked_at, missing_since, tx.now - ttl)] += 1
        sampled, is_all = sampled + len(found.rows), is_all and found.is_all
    return FreshnessSample(sampled=sampled, is_all=is_all, failed=_failed(tx), **counts)


def _freshness_of(size: int, checked_at: datetime | None, missing_since: datetime | None, fresh_since: datetime) -> str:
    if missing_since is not None:
        return "not_found"
    if not size:
        return "updating"
    return "fresh" if checked_at is not None and checked_at > fresh_since else "stale"


def _failed(tx: Transaction) -> int:
    # Counted in a bounded subquery: the cost does not grow with the number of failures.
    some = select(_status.key).where(_status.state == FAILED).limit(_MOST_FAILED).subquery()
    return tx.execute(select(func.count()).select_from(some)).scalar_one()


ALL_PRIORITIES = "all"
_ONE_SECOND = timedelta(seconds=1)
"""The usage of a limit with this window is a rate per second."""
_SAMPLE_FOR_MS = milliseconds(timedelta(seconds=10))


class KindView(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of snapshots."""

    name: str
    ttl_s: float
    """How long a snapshot is fresh."""


class RateView(msgspec.Struct, frozen=True, kw_only=True):
    """Calls in the last second."""

    priority: str
    """`high`, `low` or `all`."""
    per_second: float | None
    """Null: no rule counts them."""
    limit: float | None


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the limiter that all processes share."""

    name: str
    used: int
    limit: int
    window_s: float | None
    """Null for a rate, which has no window."""
    per_second: float | None
    """Permits per second of a rate."""
    priorities: list[str]


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """Refresh events that no worker has received."""

    topic: str
    group: str
    lag: int


class SnapshotsOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Overview of snapshots. A value that could not be read is null, and `unknown` says why."""

    at: datetime
    kinds: list[KindView]
    rates: list[RateView] | None
    rules: list[RuleView] | None
    waiting: dict[str, int] | None
    """Calls that wait for a permit, by priority."""
    paused_until: datetime | None
    """End of a pause that the upstream required; null: no pause."""
    freshness: FreshnessSample | None
    topics: list[TopicView] | None
    dead: int | None
    unknown: list[UnreadPart]


class SnapshotsOverviewReader:
    """Reads the overview; a value that cannot be read in time is null."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots, self._database = snapshots, snapshots.parts.database
        self._ttls = {name: kind.ttl for name, kind in snapshots.kinds.items()}
        self._sample: tuple[float, FreshnessSample | None] = (0.0, None)
        self._sampling = asyncio.Lock()

    async def read(self) -> SnapshotsOverview:
        """Return the current overview."""
        reads = PartialReads()
        status, lags, dead, mix = await asyncio.gather(
            reads.read(VALKEY, self._snapshots.limiter.status(), "rates", "rules", "waiting"),
            reads.read(TRANSPORT, self.lags(), "topics"),
            reads.read(TRANSPORT, self._snapshots.transport.dead_count(), "dead"),
            reads.read(DATABASE, self._freshness(), "freshness"),
        )
        now = self._database.clock.now()
        return SnapshotsOverview(
            at=now,
            kinds=[KindView(name=name, ttl_s=ttl.total_seconds()) for name, ttl in sorted(self._ttls.items())],
            rates=None if status is None else self.rates(status),
            rules=None if status is None else self._used(status),
            waiting=None if status is None else {str(each): units for each, units in status.waiting.items()},
            paused_until=now + status.paused_for if status is not None and status.paused_for else None,
            freshness=mix,
            topics=lags,
            dead=dead,
            unknown=reads.unknown,
        )

    async def lags(self) -> list[TopicView]:
        """Return the lag of each topic."""
        lags = await asyncio.gather(*(self._snapshots.transport.lag(*place) for place in GROUPS.items()))
        return [
            TopicView(topic=str(topic), group=group, lag=lag)
            for (topic, group), lag in zip(GROUPS.items(), lags, strict=True)
        ]

    async def samples(self) -> dict[str, Sample]:
        """Return the values of which the dashboard has a history."""
        status, lags = await asyncio.gather(self._snapshots.limiter.status(), self.lags())
        found = {
            f"snapshots/rate/{each.priority}": Sample(each.per_second, "calls/s")
            for each in self.rates(status)
            if each.per_second is not None
        }
        return found | {f"snapshots/lag/{each.topic}": Sample(each.lag, "messages") for each in lags}

    def rates(self, status: LimiterStatus) -> list[RateView]:
        """Return the calls of the last second: all, LOW and HIGH, if there are limits that count them."""
        every, low = self._second_of(status, ALL), self._second_of(status, frozenset({Priority.LOW}))
        # No rule counts HIGH on its own, so it is the difference. Both counters are read at
        # once but may differ slightly.
        high = None if every is None or low is None else max(0.0, every[0] - low[0])
        top = None if every is None else every[1]
        return [
            RateView(priority=ALL_PRIORITIES, per_second=None if every is None else every[0], limit=top),
            RateView(priority=str(Priority.HIGH), per_second=high, limit=top),
            RateView(
                priority=str(Priority.LOW),
                per_second=None if low is None else low[0],
                limit=top if low is None else low[1],
            ),
        ]

    def _second_of(self, status: LimiterStatus, priorities: frozenset[Priority]) -> tuple[float, float] | None:
        used = {usage.name: usage.used for usage in status.usage}
        for rule in self._rules:
            if isinstance(rule, Limit) and rule.window == _ONE_SECOND and rule.priorities == priorities:
                return float(used[rule.name]), float(rule.permits)
        return None

    def _used(self, status: LimiterStatus) -> list[RuleView]:
        return [
            RuleView(
                name=usage.name,
                used=usage.used,
                limit=usage.limit,
                window_s=rule.window.total_seconds() if isinstance(rule, Limit) else None,
                per_second=rule.per_second if isinstance(rule, Rate) else None,
                priorities=sorted(str(each) for each in rule.priorities),
            )
            for usage, rule in zip(status.usage, self._rules, strict=True)
        ]

    @property
    def _rules(self) -> Sequence[Limit | Rate]:
        return self._snapshots.limiter.settings.rules

    async def _freshness(self) -> FreshnessSample:
        """Return the sample, which is reused for a while and shared by concurrent readers."""
        # Under the lock, concurrent readers wait for one query instead of starting their own.
        async with self._sampling:
            kept_until_ms, mix = self._sample
            if mix is None or monotonic_ms() >= kept_until_ms:
                mix = await self._database.read(freshness_mix, self._ttls)
                self._sample = monotonic_ms() + _SAMPLE_FOR_MS, mix
            return mix
