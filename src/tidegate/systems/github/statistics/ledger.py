"""What is written about counted documents; every function works in the caller's transaction.

A computation has a *pass*: the user, and a fence that is higher than that of every pass of the user before. It reads
documents outside of any transaction and writes them in several; each of these looks at the fence first. So one that
was frozen, and wakes when a later one has read newer documents, writes nothing more.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, String, bindparam, delete, func, select, update

from tidegate.core.errors import TidegateError
from tidegate.storage.documents import StoredDocument
from tidegate.storage.sql import Transaction
from tidegate.systems.github.statistics.facts import Fact
from tidegate.systems.github.statistics.tables import statistics_items, statistics_users

_item, _user = statistics_items.c, statistics_users.c
_MOMENTS_AT_ONCE = 500


class Overtaken(TidegateError):
    """Another computation of the same user has begun since."""

    def __init__(self, user_id: str) -> None:
        super().__init__(f"another computation of the statistics of {user_id!r} has begun since; try again")
        self.user_id = user_id


class Pass(msgspec.Struct, frozen=True):
    """The right to write items of a user, until somebody begins another one."""

    user_id: str
    fence: int


class Claim(msgspec.Struct, frozen=True):
    """An item as a user has it."""

    id: str
    owner: str
    fence: int


class Counted(msgspec.Struct, frozen=True):
    """A document's facts on their way into the table."""

    kind: str
    id: str
    changed_at: datetime
    fact: Fact

    @classmethod
    def of(cls, document: StoredDocument, fact: Fact) -> "Counted":
        """The facts of a document."""
        return cls(document.kind, document.id, document.changed_at, fact)


def begin(tx: Transaction, user_id: str, login: str) -> Pass:
    """Begin a pass; all others of this user are overtaken."""
    named = {"login": login, "login_key": login.casefold()}
    sums = {column.name: 0 for column in statistics_users.columns if not column.nullable}
    first = {**sums, **named, "user_id": user_id, "is_stale": False}
    tx.execute(tx.insert_if_absent(statistics_users).values(first))
    mine = _user.user_id == user_id
    tx.execute(update(statistics_users).where(mine).values(fence=_user.fence + 1, **named))
    return Pass(user_id, tx.execute(select(_user.fence).where(mine)).scalar_one())


def require_valid(tx: Transaction, held: Pass) -> None:
    """Raise `Overtaken` unless the pass is the last one; nobody can begin another until the commit."""
    last = select(_user.fence).where(_user.user_id == held.user_id).with_for_update()
    if tx.execute(last).scalar() != held.fence:
        raise Overtaken(held.user_id)


def counted_changes(tx: Transaction, owner: str, kind: str) -> dict[datetime, int]:
    """What `DocumentStore.changes` would say if the documents were as they are counted."""
    found = select(_item.changed_at, func.count()).where(_item.owner == owner, _item.kind == kind)
    return {row[0]: row[1] for row in tx.execute(found.group_by(_item.changed_at))}


def write(
    tx: Transaction, held: Pass, kind: str, counted: Sequence[Counted], taken: Iterable[Claim] = ()
) -> list[Claim]:
    """Write items of one kind, each once; return those that are another user's, and were left as they are.

    A document may pass to another user while both are computed, so whose it is must be looked up after the other's
    claim was seen. Then the claim is given as `taken`: if it is still the same, it ends, and whoever had it is to be
    summed anew.
    """
    require_valid(tx, held)
    ids = sorted(each.id for each in counted)
    # By their keys alone: with the owner among the conditions, some planners go through all items of that owner.
    former = _claims(tx, kind, ids, locks=True)
    if ours := sorted(claim.id for claim in former if claim.owner == held.user_id):
        tx.execute(delete(statistics_items).where(_item.kind == kind, _is_one_of(tx, ours)))
    _end_claims(tx, kind, taken)
    tx.insert_many(statistics_items, [_row(held, each) for each in counted], skip_existing=True)
    return [claim for claim in _claims(tx, kind, ids) if claim.owner != held.user_id]


def sweep(tx: Transaction, held: Pass, kind: str, moments: Iterable[datetime] | None) -> None:
    """Remove what this pass should have met and did not: documents that are gone, or somebody else's.

    With `moments`, only what had last changed at one of them was to be met.
    """
    require_valid(tx, held)
    unmet = (_item.owner == held.user_id, _item.kind == kind, _item.fence != held.fence)
    if moments is None:
        tx.execute(delete(statistics_items).where(*unmet))
        return
    ordered = sorted(moments)
    for start in range(0, len(ordered), _MOMENTS_AT_ONCE):
        some = ordered[start : start + _MOMENTS_AT_ONCE]
        tx.execute(delete(statistics_items).where(*unmet, _item.changed_at.in_(some)))


def stale_users(tx: Transaction) -> list[str]:
    """Whose sums are to be made anew."""
    found = select(_user.user_id).where(_user.is_stale.is_(True)).order_by(_user.user_id)
    return [row.user_id for row in tx.execute(found)]


def _claims(tx: Transaction, kind: str, ids: Sequence[str], *, locks: bool = False) -> list[Claim]:
    found = select(_item.id, _item.owner, _item.fence).where(_item.kind == kind, _is_one_of(tx, ids))
    return [Claim(*row) for row in tx.execute(found.with_for_update() if locks else found)]


def _end_claims(tx: Transaction, kind: str, taken: Iterable[Claim]) -> None:
    alike: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for claim in taken:
        alike[claim.owner, claim.fence].append(claim.id)
    for (owner, fence), ids in sorted(alike.items()):
        those = (_item.kind == kind, _is_one_of(tx, sorted(ids)))
        if tx.execute(delete(statistics_items).where(*those, _item.owner == owner, _item.fence == fence)).rowcount:
            tx.execute(update(statistics_users).where(_user.user_id == owner).values(is_stale=True))


def _is_one_of(tx: Transaction, ids: Sequence[str]) -> ColumnElement[bool]:
    """While PostgreSQL does not know the table, it compares each item of a kind with each id of a list; so an array."""
    if tx.dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import ARRAY

        return _item.id.in_(select(func.unnest(bindparam(None, ids, type_=ARRAY(String)))))
    return _item.id.in_(ids)


def _row(held: Pass, each: Counted) -> dict[str, Any]:
    fact = each.fact
    return {
        "kind": each.kind,
        "id": each.id,
        "owner": held.user_id,
        "resource": fact.resource,
        "changed_at": each.changed_at,
        "fence": held.fence,
        "activity": fact.activity,
        "author_id": fact.author_id,
        "author_login": fact.author_login,
        "day": fact.day,
        "state": fact.state,
        "took_s": fact.took_s,
        "detail": None if fact.detail is None else msgspec.to_builtins(fact.detail),
    }
