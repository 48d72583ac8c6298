"""The prefetch planner: requests refreshes of due subjects. The timekeeper of the leader calls it when one is due.

The steps are: book the calls, request the refreshes, plan the next due time. After a crash in between, the subjects are
still due and the next leader requests them again; the coalescer reports those that are already queued, and rows that
were refreshed meanwhile are only planned again.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.coalescer import AlreadyProcessing, Outcome
from tidegate.storage.sql import Database
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.metrics import PREFETCH_ASKED
from tidegate.systems.snapshots.prefetch import queries
from tidegate.systems.snapshots.prefetch.budget import CallBudget, TierShares, WorkerBacklog
from tidegate.systems.snapshots.prefetch.policies import (
    FixedTiers,
    LearnedRates,
    PrefetchPolicy,
    PriceFinder,
    SubjectFacts,
)
from tidegate.systems.snapshots.prefetch.queries import PlannedCheck, PlannedRefresh
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.settings import PrefetchSettings

log = get_logger(__name__)

_MOST_AT_ONCE = 100
_STRIDE_S = 0.2
"""The calls of this time are requested in one batch."""
_PLAN_AT_ONCE = 500


class Requests(Protocol):
    """Publishes refresh requests; implemented by `RefreshPublisher`."""

    async def publish_many(self, requests: Sequence[RefreshRequest]) -> list[Outcome | TidegateError]:
        """Publish requests; the outcome of one that failed is its error."""
        ...


class PrefetchPlanner:
    """Due source of the leader that requests scheduled refreshes."""

    def __init__(
        self, database: Database, requests: Requests, settings: PrefetchSettings, backlog: WorkerBacklog | None = None
    ) -> None:
        """`backlog`: of the workers; while it is too long, nothing is requested."""
        self._database, self._requests, self._settings, self._backlog = database, requests, settings, backlog
        self._hours, self._shares = CallBudget(settings), TierShares(settings)
        now = database.clock.now()
        self._learned = LearnedRates(settings) if settings.policy == "learned" else None
        self._policy: PrefetchPolicy = self._learned or FixedTiers(settings)
        self._finder = PriceFinder(now)
        self._knows_price = self._learned is None
        self._free_at = now

    async def fire(self) -> int | None:
        """Request due refreshes within the budget; return in how many ms to call again, None if nothing is planned."""
        # The price of the previous leader, so that a change of leaders does not start from the default.
        await self._load_price()
        if await self._database.read(queries.has_new):
            await self._database.transaction(queries.plan_new, self._policy, self._shares, _PLAN_AT_ONCE)
        now = self._database.clock.now()
        next_at = await self._database.read(queries.next_due_at)
        if next_at is not None and next_at <= now:
            next_at = await self._request_batch(now)
        await self._adjust_price(now)
        if await self._database.read(queries.has_new):
            return 0
        return None if next_at is None else self._ms_until(max(next_at, self._free_at))

    async def _request_batch(self, now: datetime) -> datetime | None:
        """Request one batch if its time has come; return when there is more to do."""
        # The pace is kept by the time at which the last batch is used up.
        if now < self._free_at:
            return self._free_at
        spent = await self._database.read(queries.spent_on, self._hours.day_of(now))
        rate = self._hours.rate(now, spent)
        if rate <= 0:
            return self._hours.next_day(now)
        if self._backlog is not None and (pause := await self._backlog.pause(now, rate)):
            log.warning("prefetch.held_back", pause_s=round(pause.total_seconds()))
            self._free_at = now + pause
            return self._free_at
        # Small batches keep the load even, and a crash loses at most one batch of booked calls.
        most = min(max(1, int(rate * _STRIDE_S)), _MOST_AT_ONCE)
        booked = await self._database.transaction(queries.book, self._policy, self._shares, self._hours, most)
        if booked.split is not None:
            # Only after the commit: a transaction that is repeated must not carry the fractions over twice.
            self._shares.apply(booked.split)
        if booked.subjects:
            self._free_at = now + timedelta(seconds=len(booked.subjects) / rate)
            await self._request_booked(booked)
        return await self._database.read(queries.next_due_at)

    async def _request_booked(self, booked: PlannedRefresh) -> None:
        outcomes = await self._requests.publish_many([_request(each) for each in booked.subjects])
        results = list(zip(booked.subjects, outcomes, strict=True))
        # If a server is unavailable, the subject stays due. Other errors concern the subject.
        unavailable = [outcome for _, outcome in results if isinstance(outcome, Unavailable)]
        planned = [self._plan(each) for each, outcome in results if not isinstance(outcome, Unavailable)]
        # A failed request and one that joined a queued refresh made no call of their own: both are refunded.
        unspent = sum(isinstance(outcome, TidegateError | AlreadyProcessing) for outcome in outcomes)
        await self._database.transaction(queries.complete, booked, planned, unspent)
        if self._backlog is not None:
            self._backlog.add(len(outcomes) - unspent)
        for each, outcome in results:
            _count(each, outcome)
        # Raised last, after the other subjects are planned.
        if unavailable:
            raise unavailable[0]

    def _plan(self, facts: SubjectFacts) -> PlannedCheck:
        """Plan the refresh after the one that was requested now."""
        now = self._database.clock.now()
        due = self._policy.due_at(msgspec.structs.replace(facts, last_checked_at=now), now)
        # Each planned refresh is one observation for the price: whether the next interval is longer than the last one.
        self._finder.observe(now - (facts.last_checked_at or now), due - now)
        return PlannedCheck(facts, due, self._shares.tier_of(facts, now))

    async def _load_price(self) -> None:
        if self._learned is not None and not self._knows_price:
            self._learned.price = await self._database.read(queries.last_price) or self._learned.price
            self._knows_price = True

    async def _adjust_price(self, now: datetime) -> None:
        if self._learned is None:
            return
        price = self._finder.adjust(self._learned.price, self._hours.mean_rate(now), now)
        if price is None or price == self._learned.price:
            return
        self._learned.price = price
        day, hour = self._hours.day_of(now), self._hours.hour_of(now)
        await self._database.transaction(queries.store_price, day, hour, price)
        log.info("prefetch.price_changed", price=round(price, 6))

    def _ms_until(self, moment: datetime) -> int:
        return max(0, math.ceil((moment - self._database.clock.now()) / timedelta(milliseconds=1)))

    def __repr__(self) -> str:
        return f"Prefetch({self._settings.policy})"


def _request(facts: SubjectFacts) -> RefreshRequest:
    return RefreshRequest(
        subject=facts.subject,
        priority=Priority.LOW,
        reason=Reason.PREFETCH,
        known_version=facts.version,
        upstream_id=facts.upstream_id,
    )


def _count(facts: SubjectFacts, outcome: Outcome | TidegateError) -> None:
    if isinstance(outcome, TidegateError):
        PREFETCH_ASKED.labels("failed").inc()
        if not isinstance(outcome, Unavailable):
            log.warning("prefetch.ask_failed", subject=facts.subject.id, error=str(outcome))
    else:
        PREFETCH_ASKED.labels("coalesced" if isinstance(outcome, AlreadyProcessing) else "published").inc()
