"""The state of prefetch: due subjects, budget and rates."""

from datetime import datetime

import msgspec
from sqlalchemy import ColumnElement, func, literal, select

from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.prefetch import queries
from tidegate.systems.snapshots.prefetch.budget import CallBudget
from tidegate.systems.snapshots.prefetch.policies import Tier
from tidegate.systems.snapshots.settings import PrefetchSettings
from tidegate.systems.snapshots.tables import snapshots

_c = snapshots.c
_MOST_COUNTED = 100_000
_RATES = (0.1, 1.0, 10.0, 100.0)


class SubjectCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of all subjects. Counting takes seconds on a large table."""

    tiers: dict[str, int]
    """Subjects per tier."""
    change_rates: dict[str, int]
    """Subjects per range of learned changes per day."""


class PrefetchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of prefetch."""

    enabled: bool
    policy: str
    due_now: int
    """Due subjects; at most 100,000 are counted."""
    next_due_at: datetime | None
    """When the next subject is, or was, due."""
    budget: int
    """Maximum calls of the day."""
    spent: int
    """Calls made today."""
    budget_renews_at: datetime
    calls_per_second: float
    """Rate that budget and hour allow now."""
    target_per_second: float
    """Rate that the hour alone allows."""
    price: float | None
    """Policy `learned`: what a call has to be worth, in days of freshness; None: not known yet."""
    census: SubjectCounts | None = None


def prefetch_status(tx: Transaction, settings: PrefetchSettings, counts_all: bool = False) -> PrefetchStatus:
    """Return the current state; with `counts_all` also count all subjects, which scans the whole table."""
    hours, now = CallBudget(settings), tx.now
    spent = queries.spent_on(tx, hours.day_of(now))
    return PrefetchStatus(
        enabled=settings.enabled,
        policy=settings.policy,
        due_now=_due_now(tx),
        next_due_at=queries.next_due_at(tx),
        budget=settings.daily_budget,
        spent=spent,
        budget_renews_at=hours.next_day(now),
        calls_per_second=hours.rate(now, spent),
        target_per_second=hours.target(now),
        price=queries.last_price(tx),
        census=_census(tx, settings) if counts_all else None,
    )


def _due_now(tx: Transaction) -> int:
    due = select(literal(1)).select_from(snapshots).where(_c.next_due_at <= tx.now).limit(_MOST_COUNTED)
    return tx.execute(select(func.count()).select_from(due.subquery())).scalar_one()


def _census(tx: Transaction, settings: PrefetchSettings) -> SubjectCounts:
    hot, warm = tx.now - settings.hot_within, tx.now - settings.warm_within
    total = _count(tx)
    within_hot, within_warm = _count(tx, _c.last_asked_at >= hot), _count(tx, _c.last_asked_at >= warm)
    below = [_count(tx, _c.change_rate < bound) for bound in _RATES]
    known = _count(tx, _c.change_rate.is_not(None))
    names = [*(f"below {bound:g}" for bound in _RATES), f"{_RATES[-1]:g} or more"]
    # The counts are cumulative; differences of neighbours give the ranges.
    counts = [high - low for low, high in zip([0, *below], [*below, known], strict=True)]
    return SubjectCounts(
        tiers={
            Tier.HOT: within_hot,
            Tier.WARM: within_warm - within_hot,
            Tier.COLD: total - within_warm,
        },
        change_rates={**dict(zip(names, counts, strict=True)), "unknown": total - known},
    )


def _count(tx: Transaction, *conditions: ColumnElement[bool]) -> int:
    return tx.execute(select(func.count()).select_from(snapshots).where(*conditions)).scalar_one()
