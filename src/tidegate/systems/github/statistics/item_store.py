"""Updates the items of a user to match the stored documents, reading only documents that differ.

No time of a previous recount is stored: `DocumentStore.changes` and the same query on the items show at which times
they differ. So a document that was committed late, with an early time, is found like any other.

A computation holds a *pass*: the user and a fencing token that is higher than that of every earlier pass of the user.
It reads documents outside transactions and writes them in several ones, each of which checks the token first. So a
computation that was frozen writes nothing more after a later one has started.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, String, bindparam, delete, func, select, update

from tidegate.core.errors import TidegateError
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.documents import DocumentStore, StoredDocument
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.github.statistics.facts import READERS, Fact, fact_of
from tidegate.systems.github.statistics.tables import statistics_items, statistics_users

_item, _user = statistics_items.c, statistics_users.c
_MOMENTS_AT_ONCE = 500


class ComputationReplaced(TidegateError):
    """Another computation of the same user has started."""

    def __init__(self, user_id: str) -> None:
        super().__init__(f"another computation of the statistics of {user_id!r} has begun since; try again")
        self.user_id = user_id


class RecountPass(msgspec.Struct, frozen=True):
    """The right to write items of a user, until another pass begins."""

    user_id: str
    fence: int


class ItemClaim(msgspec.Struct, frozen=True):
    """The ownership of an item by a user."""

    id: str
    owner: str
    fence: int


class CountedItem(msgspec.Struct, frozen=True):
    """The facts of a document, ready to be written."""

    kind: str
    id: str
    changed_at: datetime
    fact: Fact

    @classmethod
    def of(cls, document: StoredDocument, fact: Fact) -> "CountedItem":
        """Combine a document's key with its facts."""
        return cls(document.kind, document.id, document.changed_at, fact)


def begin(tx: Transaction, user_id: str, login: str) -> RecountPass:
    """Begin a pass, which invalidates all others of this user."""
    named = {"login": login, "login_key": login.casefold()}
    sums = {column.name: 0 for column in statistics_users.columns if not column.nullable}
    first = {**sums, **named, "user_id": user_id, "is_stale": False}
    tx.execute(tx.insert_if_absent(statistics_users).values(first))
    mine = _user.user_id == user_id
    # The update locks the row, so two computations that begin at once get different numbers.
    tx.execute(update(statistics_users).where(mine).values(fence=_user.fence + 1, **named))
    return RecountPass(user_id, tx.execute(select(_user.fence).where(mine)).scalar_one())


def require_valid(tx: Transaction, held: RecountPass) -> None:
    """Raise `ComputationReplaced` unless the pass is the last one; locks out other passes until the commit."""
    # Locked until the commit: no other pass can begin between this check and the writes.
    last = select(_user.fence).where(_user.user_id == held.user_id).with_for_update()
    if tx.execute(last).scalar() != held.fence:
        raise ComputationReplaced(held.user_id)


def counted_changes(tx: Transaction, owner: str, kind: str) -> dict[datetime, int]:
    """The result that `DocumentStore.changes` would have if the documents were as they are counted."""
    found = select(_item.changed_at, func.count()).where(_item.owner == owner, _item.kind == kind)
    return {row[0]: row[1] for row in tx.execute(found.group_by(_item.changed_at))}


def write(
    tx: Transaction, held: RecountPass, kind: str, counted: Sequence[CountedItem], taken: Iterable[ItemClaim] = ()
) -> list[ItemClaim]:
    """Write items of one kind, each once; returns the claims of other users; their items stay unchanged.

    A document can move to another user while both are computed, so its owner must be read again after the other claim
    was seen. Then the claim is passed as `taken`: if it is unchanged, it is removed, and its former owner is marked for
    a new summation.
    """
    require_valid(tx, held)
    ids = sorted(each.id for each in counted)
    # Only by their keys: with the owner as a condition, some planners read all items of that owner.
    former = _claims(tx, kind, ids, locks=True)
    if ours := sorted(claim.id for claim in former if claim.owner == held.user_id):
        tx.execute(delete(statistics_items).where(_item.kind == kind, _is_one_of(tx, ours)))
    _end_claims(tx, kind, taken)
    # Rows of other users are skipped by the insert and returned as claims below.
    tx.insert_many(statistics_items, [_row(held, each) for each in counted], skip_existing=True)
    return [claim for claim in _claims(tx, kind, ids) if claim.owner != held.user_id]


def sweep(tx: Transaction, held: RecountPass, kind: str, moments: Iterable[datetime] | None) -> None:
    """Remove items that this pass should have written and did not: documents that are gone, or moved to another user.

    With `moments`, only items that last changed at one of them.
    """
    require_valid(tx, held)
    # Items that this pass has written have its fencing number.
    unmet = (_item.owner == held.user_id, _item.kind == kind, _item.fence != held.fence)
    if moments is None:
        tx.execute(delete(statistics_items).where(*unmet))
        return
    ordered = sorted(moments)
    for start in range(0, len(ordered), _MOMENTS_AT_ONCE):
        some = ordered[start : start + _MOMENTS_AT_ONCE]
        tx.execute(delete(statistics_items).where(*unmet, _item.changed_at.in_(some)))


def stale_users(tx: Transaction) -> list[str]:
    """Users with outdated sums."""
    found = select(_user.user_id).where(_user.is_stale.is_(True)).order_by(_user.user_id)
    return [row.user_id for row in tx.execute(found)]


def _claims(tx: Transaction, kind: str, ids: Sequence[str], *, locks: bool = False) -> list[ItemClaim]:
    found = select(_item.id, _item.owner, _item.fence).where(_item.kind == kind, _is_one_of(tx, ids))
    return [ItemClaim(*row) for row in tx.execute(found.with_for_update() if locks else found)]


def _end_claims(tx: Transaction, kind: str, taken: Iterable[ItemClaim]) -> None:
    alike: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for claim in taken:
        alike[claim.owner, claim.fence].append(claim.id)
    # Only if owner and fence are unchanged: the other user may have claimed the item again since.
    for (owner, fence), ids in sorted(alike.items()):
        those = (_item.kind == kind, _is_one_of(tx, sorted(ids)))
        if tx.execute(delete(statistics_items).where(*those, _item.owner == owner, _item.fence == fence)).rowcount:
            tx.execute(update(statistics_users).where(_user.user_id == owner).values(is_stale=True))


def _is_one_of(tx: Transaction, ids: Sequence[str]) -> ColumnElement[bool]:
    """A condition on ids; an array on PostgreSQL, which may compare each item with each id of a list."""
    if tx.dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import ARRAY

        return _item.id.in_(select(func.unnest(bindparam(None, ids, type_=ARRAY(String)))))
    return _item.id.in_(ids)


def _row(held: RecountPass, each: CountedItem) -> dict[str, Any]:
    """Return the row of a counted item."""
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


log = get_logger(__name__)

_AT_ONCE = 1000
_MOMENTS_PER_STEP = 200
_MOST_CLAIMS = 5


class Recount:
    """One pass over the documents of a user; `full` reads all of them."""

    def __init__(self, database: Database, documents: DocumentStore, held: RecountPass, *, full: bool) -> None:
        self._database, self._documents = database, documents
        self._pass, self._full = held, full
        self.read = 0
        """Number of documents read."""

    async def run(self) -> None:
        """Count all kinds. Raises `ComputationReplaced` if another pass began in the meantime."""
        for kind in READERS:
            await (self._count_all(kind) if self._full else self._count_changed(kind))

    async def _count_all(self, kind: str) -> None:
        await self._write(kind, None)
        await self._database.transaction(sweep, self._pass, kind, None)

    async def _count_changed(self, kind: str) -> None:
        """Count added and changed documents first; then remove items where there are still too many."""
        there = await self._documents.changes(kind, self._pass.user_id)
        counted = await self._counted(kind)
        # The usual case after a run without changes: two grouped queries, and no document is read.
        if there == counted:
            return
        # Where more documents than items have a time, documents were added or changed.
        await self._write(kind, [at for at, number in there.items() if number > counted.get(at, 0)])
        counted = await self._counted(kind)
        # An item that changed was moved to its new time by the step above. What is left over is gone,
        # or moved to another user.
        if too_many := {at for at, number in counted.items() if number > there.get(at, 0)}:
            await self._write(kind, too_many & there.keys())
            await self._database.transaction(sweep, self._pass, kind, too_many)

    async def _counted(self, kind: str) -> Mapping[datetime, int]:
        return await self._database.read(counted_changes, self._pass.user_id, kind)

    async def _write(self, kind: str, moments: Collection[datetime] | None) -> None:
        """Count all documents, or those that changed at given times."""
        for some in [None] if moments is None else _parts(sorted(moments)):
            batch: list[CountedItem] = []
            async for document in self._documents.iterate(kind, self._pass.user_id, changed_at=some):
                batch.append(CountedItem.of(document, _readable(document)))
                if len(batch) == _AT_ONCE:
                    await self._write_batch(kind, batch)
                    batch = []
            if batch:
                await self._write_batch(kind, batch)

    async def _write_batch(self, kind: str, batch: Sequence[CountedItem]) -> None:
        self.read += len(batch)
        claims = await self._database.transaction(write, self._pass, kind, batch)
        # Each round needs a conflict with another computation, so a few are enough.
        for _ in range(_MOST_CLAIMS):
            if not claims:
                return
            disputed = {claim.id for claim in claims}
            ours = await self._read_again(kind, [each for each in batch if each.id in disputed])
            taken = [claim for claim in claims if claim.id in {each.id for each in ours}]
            claims = await self._database.transaction(write, self._pass, kind, ours, taken) if ours else []
        # The caller begins again with a new pass, after a pause.
        raise ComputationReplaced(self._pass.user_id)

    async def _read_again(self, kind: str, disputed: Sequence[CountedItem]) -> list[CountedItem]:
        """The disputed items that still belong to this user and are unchanged, after the other claim was seen."""
        ids, moments = {each.id for each in disputed}, {each.changed_at for each in disputed}
        still = self._documents.iterate(kind, self._pass.user_id, changed_at=moments)
        return [CountedItem.of(document, _readable(document)) async for document in still if document.id in ids]


def _readable(document: StoredDocument) -> Fact:
    fact = fact_of(document)
    if fact is None:
        log.warning("statistics.document_unreadable", kind=document.kind, document=document.id)
        return Fact(resource=document.resource)
    return fact


def _parts(moments: Sequence[datetime]) -> Iterator[Sequence[datetime]]:
    for start in range(0, len(moments), _MOMENTS_PER_STEP):
        yield moments[start : start + _MOMENTS_PER_STEP]
