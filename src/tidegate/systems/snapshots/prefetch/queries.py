"""The planner's statements: which subjects are due, what was spent, when each is due next. All in given transactions.

Rows are found by the index on their tier and due time, a bounded number at once; nothing goes through all of them.
"""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, func, select, update

from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch.budget import CallBudget, TierShares, TierSplit
from tidegate.systems.snapshots.prefetch.policies import TIER_NUMBERS, PrefetchPolicy, SubjectFacts, Tier
from tidegate.systems.snapshots.tables import prefetch_hours, snapshots

_c, _hours = snapshots.c, prefetch_hours.c


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects to ask for now, and the hour on which they are booked."""

    subjects: Sequence[SubjectFacts]
    day: date
    hour: int
    put_off: int = 0
    """Others that had come up, and turned out not to be due: they were checked for a reader meanwhile."""
    split: TierSplit | None = None
    """How the calls were divided among the tiers; None where nothing was due."""


def has_new(tx: Transaction) -> bool:
    """Whether there are subjects without a due time."""
    return tx.execute(select(_c.key).where(_c.next_due_at.is_(None)).limit(1)).first() is not None


def enrol(tx: Transaction, policy: PrefetchPolicy, lanes: TierShares, limit: int) -> int:
    """Give new subjects their first due time; tells how many there were."""
    new = list(map(_facts, tx.execute(_FACTS.where(_c.next_due_at.is_(None)).limit(limit))))
    _plan(tx, [PlannedCheck(each, policy.due_at(each, tx.now), lanes.tier_of(each, tx.now)) for each in new])
    return len(new)


def book(tx: Transaction, policy: PrefetchPolicy, lanes: TierShares, hours: CallBudget, limit: int) -> Booking:
    """Take those that are due, as many as the day's budget allows; they count as spent from now on.

    Each tier is given its share, the longest due first. They are booked before they are asked for: a process that dies
    in between has spent too little, and never too much.
    """
    day, hour = hours.day_of(tx.now), hours.hour_of(tx.now)
    waiting: dict[Tier, list[SubjectFacts]] = {tier: [] for tier in Tier}
    planned: list[PlannedCheck] = []
    put_off = 0
    for lane in Tier:
        for each in _come_up(tx, lane, limit):
            at, tier = policy.due_at(each, tx.now), lanes.tier_of(each, tx.now)
            if at > tx.now:
                planned.append(PlannedCheck(each, at, tier))
                put_off += 1
                continue
            waiting[tier].append(each)
            if tier is not lane:
                planned.append(
                    PlannedCheck(each, _due_time(each), tier)
                )  # it waits in the lane of its tier from now on
    _plan(tx, planned)
    split = lanes.split({tier: len(each) for tier, each in waiting.items()}, limit)
    due = [each for tier in Tier for each in sorted(waiting[tier], key=_due_time)[: split.take[tier]]]
    if due:
        tx.insert_many(prefetch_hours, [{"day": day, "hour": hour, "spent": 0}], skip_existing=True)
        # Locked: two who believe to lead cannot both spend the last of it. Only a read that locks is sure to see what
        # the other spent, where a transaction sees the past otherwise.
        of_day = select(_hours.spent).where(_hours.day == day).order_by(_hours.hour)
        spent = sum(tx.execute(of_day.with_for_update()).scalars())
        due = due[: max(0, hours.budget - spent)]
        _add(tx, day, hour, len(due))
    return Booking(subjects=due, day=day, hour=hour, put_off=put_off, split=split if due else None)


def settle(tx: Transaction, booked: Booking, planned: Sequence["PlannedCheck"], refund: int) -> None:
    """Note when subjects that were asked for are due next, and give back what was not spent."""
    _plan(tx, planned)
    if refund:
        _add(tx, booked.day, booked.hour, -refund)


def spent_on(tx: Transaction, day: date) -> int:
    """The calls of a day."""
    return int(tx.execute(select(func.coalesce(func.sum(_hours.spent), 0)).where(_hours.day == day)).scalar_one())


def next_due_at(tx: Transaction) -> datetime | None:
    """When the next subject comes up."""
    return tx.execute(select(func.min(_c.next_due_at))).scalar_one()


def last_price(tx: Transaction) -> float | None:
    """What a call had to be worth, when that was last changed."""
    priced = select(_hours.price).where(_hours.price.is_not(None)).order_by(_hours.day.desc(), _hours.hour.desc())
    return tx.execute(priced.limit(1)).scalar_one_or_none()


def note_price(tx: Transaction, day: date, hour: int, price: float) -> None:
    """Keep it for whoever leads next."""
    tx.insert_many(prefetch_hours, [{"day": day, "hour": hour, "spent": 0}], skip_existing=True)
    tx.execute(update(prefetch_hours).where(_hours.day == day, _hours.hour == hour).values(price=price))


class PlannedCheck(msgspec.Struct, frozen=True):
    """When a subject is due next, and in which tier."""

    facts: SubjectFacts
    due_at: datetime
    tier: Tier


_FACTS = select(
    *(_c.kind, _c.key, _c.version, _c.upstream_id, _c.last_checked_at, _c.last_asked_at),
    *(_c.change_rate, _c.changes, _c.next_due_at),
)
_PLAN = (
    update(snapshots)
    # Somebody else may have planned it meanwhile, or a reader brought it forward: then that stands.
    .where(_c.kind == bindparam("of_kind"), _c.key == bindparam("of_key"), _c.next_due_at == bindparam("seen"))
    .values(next_due_at=bindparam("due"), tier=bindparam("lane"))
)
_PLAN_FIRST = (
    update(snapshots)
    .where(_c.kind == bindparam("of_kind"), _c.key == bindparam("of_key"), _c.next_due_at.is_(None))
    .values(next_due_at=bindparam("due"), tier=bindparam("lane"))
)


def _plan(tx: Transaction, planned: Iterable["PlannedCheck"]) -> None:
    """In the order of the keys, as those who write results do: so none waits for another in a circle."""
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
        "lane": TIER_NUMBERS[plan.tier],
    }


def _come_up(tx: Transaction, tier: Tier, limit: int) -> Iterable[SubjectFacts]:
    """Those of a lane that are due, the longest first."""
    those = _FACTS.where(_c.tier == TIER_NUMBERS[tier], _c.next_due_at <= tx.now)
    return map(_facts, tx.execute(those.order_by(_c.next_due_at).limit(limit)).all())


def _due_time(facts: SubjectFacts) -> datetime:
    assert facts.next_due_at is not None, "it came up"
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
        changes=max(0, row.changes - 1),
        next_due_at=row.next_due_at,
    )
