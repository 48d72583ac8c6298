"""Asks for the subjects that are due; the leader's timekeeper calls, and sleeps until the next one.

In this order: booked -> asked for -> planned anew. Whoever dies in between leaves subjects that are still due, so none
is lost; the next leader asks for them again, and the coalescer answers that it is being done. What was done meanwhile
shows in the row, whose check is so new that it is only planned anew.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import PREFETCH_ASKED
from tidegate.primitives.coalescer import AlreadyProcessing, Outcome
from tidegate.storage.sql import Database
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.prefetch import queries
from tidegate.systems.snapshots.prefetch.budget import CallBudget, TierShares, WorkerBacklog
from tidegate.systems.snapshots.prefetch.policies import (
    FixedTiers,
    LearnedRates,
    PrefetchPolicy,
    PriceFinder,
    SubjectFacts,
)
from tidegate.systems.snapshots.prefetch.queries import Booking, PlannedCheck
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.settings import PrefetchSettings

log = get_logger(__name__)

_MOST_AT_ONCE = 100
_STRIDE_S = 0.2
"""What may be spent in this time is asked for at once."""
_ENROL_AT_ONCE = 500


class Requests(Protocol):
    """Who has subjects refreshed; `UpdateRequests` is one."""

    async def ask_many(self, wishes: Sequence[RefreshRequest]) -> list[Outcome | TidegateError]:
        """Publish each wish, unless somebody has; an error stands in the place of its outcome."""
        ...


class PrefetchPlanner:
    """A source of the timekeeper."""

    def __init__(
        self, database: Database, requests: Requests, settings: PrefetchSettings, backlog: WorkerBacklog | None = None
    ) -> None:
        """`backlog`: of the workers who do it; while they have too much, nothing is asked for."""
        self._database, self._requests, self._settings, self._backlog = database, requests, settings, backlog
        self._hours, self._lanes = CallBudget(settings), TierShares(settings)
        now = database.clock.now()
        self._learned = LearnedRates(settings) if settings.policy == "learned" else None
        self._policy: PrefetchPolicy = self._learned or FixedTiers(settings)
        self._finder = PriceFinder(now)
        self._knows_price = self._learned is None
        self._free_at = now

    async def fire(self) -> int | None:
        """Ask for what is due, as much of it as the hour and the day allow; return in how many ms more will be."""
        await self._recall_price()
        if await self._database.read(queries.has_new):
            await self._database.transaction(queries.enrol, self._policy, self._lanes, _ENROL_AT_ONCE)
        now = self._database.clock.now()
        next_at = await self._database.read(queries.next_due_at)
        if next_at is not None and next_at <= now:
            next_at = await self._ask_for_some(now)
        await self._adjust_price(now)
        if await self._database.read(queries.has_new):
            return 0
        return None if next_at is None else self._ms_until(max(next_at, self._free_at))

    async def _ask_for_some(self, now: datetime) -> datetime | None:
        """One batch, if its time has come; returns when there is more to do."""
        if now < self._free_at:
            return self._free_at
        spent = await self._database.read(queries.spent_on, self._hours.day_of(now))
        rate = self._hours.rate(now, spent)
        if rate <= 0:
            return self._hours.next_day(now)
        if self._backlog is not None and (rest := await self._backlog.rest(now, rate)):
            log.warning("prefetch.held_back", rest_s=round(rest.total_seconds()))
            self._free_at = now + rest
            return self._free_at
        most = min(max(1, int(rate * _STRIDE_S)), _MOST_AT_ONCE)
        booked = await self._database.transaction(queries.book, self._policy, self._lanes, self._hours, most)
        if booked.split is not None:
            self._lanes.note(booked.split)
        if booked.subjects:
            self._free_at = now + timedelta(seconds=len(booked.subjects) / rate)
            await self._ask_for(booked)
        return await self._database.read(queries.next_due_at)

    async def _ask_for(self, booked: Booking) -> None:
        outcomes = await self._requests.ask_many([_wish(each) for each in booked.subjects])
        results = list(zip(booked.subjects, outcomes, strict=True))
        # A server that is away or refuses says nothing of the subject, which stays due. Other errors are the subject's.
        away = [outcome for _, outcome in results if isinstance(outcome, Unavailable)]
        planned = [self._plan(each) for each, outcome in results if not isinstance(outcome, Unavailable)]
        unspent = sum(isinstance(outcome, TidegateError | AlreadyProcessing) for outcome in outcomes)
        await self._database.transaction(queries.settle, booked, planned, unspent)
        if self._backlog is not None:
            self._backlog.add(len(outcomes) - unspent)
        for each, outcome in results:
            _tell(each, outcome)
        if away:
            raise away[0]

    def _plan(self, facts: SubjectFacts) -> PlannedCheck:
        """When it is due after the check that was asked for now, and in which tier."""
        now = self._database.clock.now()
        due = self._policy.due_at(msgspec.structs.replace(facts, last_checked_at=now), now)
        self._finder.observe(now - (facts.last_checked_at or now), due - now)
        return PlannedCheck(facts, due, self._lanes.tier_of(facts, now))

    async def _recall_price(self) -> None:
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
        await self._database.transaction(queries.note_price, day, hour, price)
        log.info("prefetch.price_changed", price=round(price, 6))

    def _ms_until(self, moment: datetime) -> int:
        return max(0, math.ceil((moment - self._database.clock.now()) / timedelta(milliseconds=1)))

    def __repr__(self) -> str:
        return f"Prefetch({self._settings.policy})"


def _wish(facts: SubjectFacts) -> RefreshRequest:
    return RefreshRequest(
        subject=facts.subject,
        priority=Priority.LOW,
        reason=Reason.PREFETCH,
        known_version=facts.version,
        upstream_id=facts.upstream_id,
    )


def _tell(facts: SubjectFacts, outcome: Outcome | TidegateError) -> None:
    if isinstance(outcome, TidegateError):
        PREFETCH_ASKED.labels("failed").inc()
        if not isinstance(outcome, Unavailable):
            log.warning("prefetch.ask_failed", subject=facts.subject.id, error=str(outcome))
    else:
        PREFETCH_ASKED.labels("coalesced" if isinstance(outcome, AlreadyProcessing) else "published").inc()
