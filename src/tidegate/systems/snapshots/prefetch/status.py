"""How prefetching stands, for those who look."""

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
    """All subjects, counted: on a large table this takes its time."""

    tiers: dict[str, int]
    """How many are HOT, WARM and COLD."""
    change_rates: dict[str, int]
    """How many change so often, as far as was learned; in changes per day."""


class PrefetchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How prefetching stands."""

    enabled: bool
    policy: str
    due_now: int
    """Subjects that wait to be asked for; no more than 100,000 are counted."""
    next_due_at: datetime | None
    """When the next subject comes up, or came up."""
    budget: int
    """Calls of the day."""
    spent: int
    """Of these, so far."""
    budget_renews_at: datetime
    calls_per_second: float
    """What budget and hour allow at this moment."""
    target_per_second: float
    """What the hour alone allows."""
    price: float | None
    """Learned rates: what a call has to be worth, in days of freshness; None before that was found out."""
    census: SubjectCounts | None = None


def prefetch_status(tx: Transaction, settings: PrefetchSettings, counts_all: bool = False) -> PrefetchStatus:
    """How prefetching stands now; with `counts_all` all subjects are counted, which goes through the whole table."""
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
    everybody = _count(tx)
    within_hot, within_warm = _count(tx, _c.last_asked_at >= hot), _count(tx, _c.last_asked_at >= warm)
    below = [_count(tx, _c.change_rate < bound) for bound in _RATES]
    known = _count(tx, _c.change_rate.is_not(None))
    names = [*(f"below {bound:g}" for bound in _RATES), f"{_RATES[-1]:g} or more"]
    counts = [high - low for low, high in zip([0, *below], [*below, known], strict=True)]
    return SubjectCounts(
        tiers={
            Tier.HOT: within_hot,
            Tier.WARM: within_warm - within_hot,
            Tier.COLD: everybody - within_warm,
        },
        change_rates={**dict(zip(names, counts, strict=True)), "unknown": everybody - known},
    )


def _count(tx: Transaction, *conditions: ColumnElement[bool]) -> int:
    return tx.execute(select(func.count()).select_from(snapshots).where(*conditions)).scalar_one()
