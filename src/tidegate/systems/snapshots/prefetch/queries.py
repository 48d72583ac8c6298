"""SQL of prefetch: due subjects, what was spent, when each subject is due next, and the state for operators.

Rows are found by the index on tier and due time, a bounded number at once; no statement of the planner scans the whole
table. Functions with a transaction work in that of the caller.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, func, literal, select, update

from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch.budget import CallBudget, TierShares, TierSplit
from tidegate.systems.snapshots.prefetch.policies import (
    TIER_NUMBERS,
    PrefetchPolicy,
    SubjectFacts,
    Tier,
    tier_of,
)
from tidegate.systems.snapshots.sampling import kinds_of, random_place, sample
from tidegate.systems.snapshots.settings import PrefetchSettings
from tidegate.systems.snapshots.tables import prefetch_hours, snapshots

_c, _hours = snapshots.c, prefetch_hours.c


class PlannedRefresh(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects to refresh now, and the hour to which their calls count."""

    subjects: Sequence[SubjectFacts]
    day: date
    hour: int
    not_due: int = 0
    """Number of other subjects that were not due any more, because they were checked for a reader."""
    split: TierSplit | None = None
    """How the calls were divided among the tiers; None: nothing was due."""


def has_new(tx: Transaction) -> bool:
    """Return whether there are subjects without a due time."""
    return tx.execute(select(_c.key).where(_c.next_due_at.is_(None)).limit(1)).first() is not None


def plan_new(tx: Transaction, policy: PrefetchPolicy, shares: TierShares, limit: int) -> int:
    """Give up to `limit` new subjects their first due time; return their number."""
    new = list(map(_facts, tx.execute(_FACTS.where(_c.next_due_at.is_(None)).limit(limit))))
    _plan(tx, [PlannedCheck(each, policy.due_at(each, tx.now), shares.tier_of(each, tx.now)) for each in new])
    return len(new)


def book(tx: Transaction, policy: PrefetchPolicy, shares: TierShares, hours: CallBudget, limit: int) -> PlannedRefresh:
    """Take due subjects, as many as the daily budget allows; their calls count as spent.

    Each tier gets its share, the longest due first. Calls are booked before the refreshes are requested: after a crash
    in between, fewer calls were made than booked, never more.
    """
    day, hour = hours.day_of(tx.now), hours.hour_of(tx.now)
    waiting: dict[Tier, list[SubjectFacts]] = {tier: [] for tier in Tier}
    planned: list[PlannedCheck] = []
    not_due = 0
    for of_tier in Tier:
        # The stored due time is only a hint: a reader may have caused a refresh since. The policy decides again.
        for each in _due_in(tx, of_tier, limit):
            at, tier = policy.due_at(each, tx.now), shares.tier_of(each, tx.now)
            if at > tx.now:
                planned.append(PlannedCheck(each, at, tier))
                not_due += 1
                continue
            waiting[tier].append(each)
            if tier is not of_tier:
                planned.append(PlannedCheck(each, _due_time(each), tier))  # move it to the queue of its current tier
    _plan(tx, planned)
    split = shares.split({tier: len(each) for tier, each in waiting.items()}, limit)
    due = [each for tier in Tier for each in sorted(waiting[tier], key=_due_time)[: split.take[tier]]]
    if due:
        tx.insert_many(prefetch_hours, [{"day": day, "hour": hour, "spent": 0}], skip_existing=True)
        # Locked, so that two processes that both believe to be the leader cannot overspend. With snapshot isolation
        # only a locking read sees what the other has committed.
        of_day = select(_hours.spent).where(_hours.day == day).order_by(_hours.hour)
        spent = sum(tx.execute(of_day.with_for_update()).scalars())
        due = due[: max(0, hours.budget - spent)]
        _add(tx, day, hour, len(due))
    return PlannedRefresh(subjects=due, day=day, hour=hour, not_due=not_due, split=split if due else None)


def complete(tx: Transaction, booked: PlannedRefresh, planned: Sequence["PlannedCheck"], refund: int) -> None:
    """Record when requested subjects are due next, and refund calls that were not made."""
    _plan(tx, planned)
    if refund:
        _add(tx, booked.day, booked.hour, -refund)


def spent_on(tx: Transaction, day: date) -> int:
    """Return the calls of a day."""
    return int(tx.execute(select(func.coalesce(func.sum(_hours.spent), 0)).where(_hours.day == day)).scalar_one())


def next_due_at(tx: Transaction) -> datetime | None:
    """Return when the next subject is due."""
    return tx.execute(select(func.min(_c.next_due_at))).scalar_one()


def last_price(tx: Transaction) -> float | None:
    """Return the last stored price of a call; None: none is stored."""
    priced = select(_hours.price).where(_hours.price.is_not(None)).order_by(_hours.day.desc(), _hours.hour.desc())
    return tx.execute(priced.limit(1)).scalar_one_or_none()


def store_price(tx: Transaction, day: date, hour: int, price: float) -> None:
    """Store the price for the next leader."""
    tx.insert_many(prefetch_hours, [{"day": day, "hour": hour, "spent": 0}], skip_existing=True)
    tx.execute(update(prefetch_hours).where(_hours.day == day, _hours.hour == hour).values(price=price))


class PlannedCheck(msgspec.Struct, frozen=True):
    """When a subject is due next, and its tier."""

    facts: SubjectFacts
    due_at: datetime
    tier: Tier


_FACTS = select(
    *(_c.kind, _c.key, _c.version, _c.upstream_id, _c.last_checked_at, _c.last_asked_at),
    *(_c.change_rate, _c.changes, _c.next_due_at),
)
_PLAN = (
    update(snapshots)
    # Not if the row was planned again or brought forward by a reader meanwhile.
    .where(_c.kind == bindparam("of_kind"), _c.key == bindparam("of_key"), _c.next_due_at == bindparam("seen"))
    .values(next_due_at=bindparam("due"), tier=bindparam("new_tier"))
)
_PLAN_FIRST = (
    update(snapshots)
    .where(_c.kind == bindparam("of_kind"), _c.key == bindparam("of_key"), _c.next_due_at.is_(None))
    .values(next_due_at=bindparam("due"), tier=bindparam("new_tier"))
)


def _plan(tx: Transaction, planned: Iterable["PlannedCheck"]) -> None:
    """Write due times in key order, like results are written, which avoids deadlocks."""
    ordered = sorted(planned, key=lambda each: each.facts.subject)
    for statement, rows in (
        (_PLAN, [_row(each) | {"seen": each.facts.next_due_at} for each in ordered if each.facts.next_due_at]),
        (_PLAN_FIRST, [_row(each) for each in ordered if each.facts.next_due_at is None]),
    ):
        if rows:
            tx.execute(statement, rows)


def _row(plan: "PlannedCheck") -> dict[str, Any]:
    subject = plan.facts.subject
    return {
        "of_kind": subject.kind,
        "of_key": subject.key,
        "due": plan.due_at,
        "new_tier": TIER_NUMBERS[plan.tier],
    }


def _due_in(tx: Transaction, tier: Tier, limit: int) -> Iterable[SubjectFacts]:
    """Return due subjects of a tier, the longest due first."""
    # Equality on the tier and a range on the due time: answered by the index (tier, next_due_at), without sorting.
    those = _FACTS.where(_c.tier == TIER_NUMBERS[tier], _c.next_due_at <= tx.now)
    return map(_facts, tx.execute(those.order_by(_c.next_due_at).limit(limit)).all())


def _due_time(facts: SubjectFacts) -> datetime:
    assert facts.next_due_at is not None, "due subjects have a due time"
    return facts.next_due_at


def _add(tx: Transaction, day: date, hour: int, calls: int) -> None:
    values = {"spent": _hours.spent + calls}
    tx.execute(update(prefetch_hours).where(_hours.day == day, _hours.hour == hour).values(values))


def _facts(row: Any) -> SubjectFacts:
    return SubjectFacts(
        subject=SnapshotSubject(row.kind, row.key),
        version=row.version,
        upstream_id=row.upstream_id,
        last_checked_at=row.last_checked_at,
        last_asked_at=row.last_asked_at,
        change_rate=row.change_rate,
        # The first body counts as a change in the table, but there was nothing to compare it with.
        changes=max(0, row.changes - 1),
        next_due_at=row.next_due_at,
    )


_MOST_COUNTED = 100_000
_MOST_SAMPLED = 2_000
_RATES = (0.1, 1.0, 10.0, 100.0)
_RATE_NAMES = (*(f"below {bound:g}" for bound in _RATES), f"{_RATES[-1]:g} or more")
_UNKNOWN_RATE = "unknown"


class SubjectCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of subjects, estimated from a random sample unless the sample has all."""

    total: int
    """All subjects."""
    tiers: dict[str, int]
    """Subjects per tier."""
    change_rates: dict[str, int]
    """Subjects per range of learned changes per day."""
    sampled: int
    """Number of subjects in the sample."""
    is_all: bool
    """Whether the sample has all subjects; then the numbers are exact."""


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
    counts: SubjectCounts | None = None


def prefetch_status(tx: Transaction, settings: PrefetchSettings, counts_all: bool = False) -> PrefetchStatus:
    """Return the current state; with `counts_all` also the numbers of subjects by tier and change rate."""
    hours, now = CallBudget(settings), tx.now
    spent = spent_on(tx, hours.day_of(now))
    return PrefetchStatus(
        enabled=settings.enabled,
        policy=settings.policy,
        due_now=_due_now(tx),
        next_due_at=next_due_at(tx),
        budget=settings.daily_budget,
        spent=spent,
        budget_renews_at=hours.next_day(now),
        calls_per_second=hours.rate(now, spent),
        target_per_second=hours.target(now),
        price=last_price(tx),
        counts=count_subjects(tx, settings) if counts_all else None,
    )


def _due_now(tx: Transaction) -> int:
    due = select(literal(1)).select_from(snapshots).where(_c.next_due_at <= tx.now).limit(_MOST_COUNTED)
    return tx.execute(select(func.count()).select_from(due.subquery())).scalar_one()


def count_subjects(
    tx: Transaction, settings: PrefetchSettings, most: int = _MOST_SAMPLED, start: int | None = None
) -> SubjectCounts:
    """Count subjects by tier and by range of change rates, in a sample of up to `most` subjects.

    `start`: the position at which the sample begins; random by default.
    """
    start = random_place() if start is None else start
    kinds = kinds_of(tx)
    samples = [
        sample(tx, kind, (_c.last_asked_at, _c.change_rate), max(2, most // len(kinds)), start) for kind in kinds
    ]
    tiers, rates = dict.fromkeys(map(str, Tier), 0.0), dict.fromkeys([*_RATE_NAMES, _UNKNOWN_RATE], 0.0)
    for found in samples:
        # Each sampled row stands for as many subjects of its kind.
        weight = found.total / max(len(found.rows), 1)
        for asked_at, change_rate in found.rows:
            tiers[tier_of(asked_at, tx.now, settings)] += weight
            name = _UNKNOWN_RATE if change_rate is None else _RATE_NAMES[bisect_right(_RATES, change_rate)]
            rates[name] += weight
    return SubjectCounts(
        total=sum(found.total for found in samples),
        tiers={name: round(count) for name, count in tiers.items()},
        change_rates={name: round(count) for name, count in rates.items()},
        sampled=sum(len(found.rows) for found in samples),
        is_all=all(found.is_all for found in samples),
    )
