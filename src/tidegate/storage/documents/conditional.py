"""Conditional writes in SQL: rows are locked while the rules of `ConditionalWrite` decide on them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import Text, select, type_coerce, update

from tidegate.storage.documents.document import Document, StoredDocument
from tidegate.storage.documents.statements import parts
from tidegate.storage.documents.store import ConditionalWrite, WriteAction
from tidegate.storage.documents.tables import documents
from tidegate.storage.sql import Transaction

_MOST_ROUNDS = 20
_AT_ONCE = 1000
_c = documents.c


class LockedDocument(msgspec.Struct, frozen=True):
    """A stored document and its sweep."""

    document: StoredDocument
    sweep: int


def apply_conditionally(tx: Transaction, source: str, writes: Sequence[ConditionalWrite]) -> tuple[int, int]:
    """Write documents of a source, one per key and sorted; return how many changed, and how many are gone.

    A document that another transaction inserts meanwhile is locked and decided on again; those that were inserted
    beside it are then not counted.
    """
    changed = gone = 0
    left = list(writes)
    for _ in range(_MOST_ROUNDS):
        # Absent documents cannot be locked. If one appears before the insertion, another round locks it.
        present = _locked(tx, source, [each.document for each in left])
        inserted = list[tuple[ConditionalWrite, WriteAction]]()
        for each in left:
            old = present.get(each.document.key)
            action = each.decide(None if old is None else old.document)
            if action is WriteAction.SKIP:
                continue
            if old is None:
                inserted.append((each, action))
                continue
            _update(tx, source, each.document, old, action)
            changed += action is WriteAction.WRITE
            gone += action is WriteAction.REMOVE
        # Fewer rows than given: another transaction inserted some first.
        if _insert(tx, source, inserted) == len(inserted):
            changed += sum(action is WriteAction.WRITE for _, action in inserted)
            gone += sum(action is WriteAction.REMOVE for _, action in inserted)
            break
        left = [each for each, _ in inserted]
    return changed, gone


def _locked(tx: Transaction, source: str, given: Sequence[Document]) -> Mapping[tuple[str, str], LockedDocument]:
    """Lock the stored documents with the keys of `given`, and return them by kind and id."""
    columns = (
        *(_c.kind, _c.id, _c.owner, _c.resource, _c.version, type_coerce(_c.body, Text).label("text")),
        *(_c.created_at, _c.changed_at, _c.gone_at, _c.fingerprint, _c.sweep),
    )
    found = dict[tuple[str, str], LockedDocument]()
    for kind, group in groupby(given, key=lambda each: each.kind):
        ids = [each.id for each in group]
        for start in range(0, len(ids), _AT_ONCE):
            those = select(*columns).where(_c.source == source, _c.kind == kind)
            those = those.where(_c.id.in_(ids[start : start + _AT_ONCE])).order_by(_c.id).with_for_update()
            for row in tx.execute(those):
                stored = StoredDocument(
                    kind=row.kind,
                    id=row.id,
                    owner=row.owner,
                    resource=row.resource,
                    version=row.version,
                    text=row.text,
                    created_at=row.created_at,
                    changed_at=row.changed_at,
                    gone_at=row.gone_at,
                    fingerprint=row.fingerprint,
                )
                found[stored.kind, stored.id] = LockedDocument(stored, row.sweep)
    return found


def _update(tx: Transaction, source: str, document: Document, old: LockedDocument, action: WriteAction) -> None:
    change: dict[str, Any] = {"changed_at": tx.now, "sweep": max(old.sweep, document.sweep)}
    if action is WriteAction.REMOVE:
        # Doubled, so that a gone document has another fingerprint than the present one.
        change |= {"gone_at": tx.now, "fingerprint": old.document.fingerprint * 2}
    else:
        change |= {**_content(document), "gone_at": None}
    those = (_c.source == source, _c.kind == document.kind, _c.id == document.id)
    tx.execute(update(documents).where(*those).values(change))


def _insert(tx: Transaction, source: str, wanted: Sequence[tuple[ConditionalWrite, WriteAction]]) -> int:
    """Insert the absent documents; returns their number."""
    actions = {each.document.key: action for each, action in wanted}
    return sum(
        tx.execute(
            tx.insert_if_absent(documents).values(
                [_row(source, document, actions[document.key], tx.now) for document in part]
            )
        ).rowcount
        for part in parts([each.document for each, _ in wanted])
    )


def _row(source: str, document: Document, action: WriteAction, now: datetime) -> dict[str, Any]:
    is_gone = action is WriteAction.REMOVE
    return {
        "source": source,
        "kind": document.kind,
        "id": document.id,
        **_content(document),
        "fingerprint": document.fingerprint * (2 if is_gone else 1),
        "sweep": document.sweep,
        "created_at": now,
        "changed_at": now,
        "gone_at": now if is_gone else None,
    }


def _content(document: Document) -> dict[str, Any]:
    return {
        "owner": document.owner,
        "resource": document.resource,
        "version": document.version,
        "hash": document.hash,
        "fingerprint": document.fingerprint,
        "body": msgspec.Raw(document.text.encode()),
    }
