"""The table `documents` of the SQL document store, and its two hot operations: replace documents, and write by a rule.

`write` writes many documents and counts those that changed, in one statement of each server. Where a server can say
"replace it only if" (SQLite, PostgreSQL), the rule of `store.is_taken` stands in the statement. MySQL and MariaDB
cannot, and cannot count either; there the rows are locked and the rule is applied here.

`apply_conditionally` locks rows while the rules of `ConditionalWrite` decide on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Column, Index, String, Table, Text, select, type_coerce, update

from tidegate.storage.documents.document import (
    HASH_LENGTH,
    LONGEST_KIND,
    LONGEST_SOURCE,
    LONGEST_TEXT,
    LONGEST_VERSION,
    Document,
    StoredDocument,
)
from tidegate.storage.documents.store import ConditionalWrite, StoredVersion, WriteAction, is_taken
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, Json, UtcDateTime, exact_text, metadata


def sorted_text(length: int) -> String:
    """A text column that every database sorts by code points, and not by the rules of a language."""
    return exact_text(length).with_variant(String(length, collation="C"), "postgresql")


documents = Table(
    "documents",
    metadata,
    Column("source", exact_text(LONGEST_SOURCE), primary_key=True),
    Column("kind", exact_text(LONGEST_KIND), primary_key=True),
    Column("id", sorted_text(LONGEST_TEXT), primary_key=True),
    Column("owner", exact_text(LONGEST_TEXT), nullable=False),
    Column("resource", exact_text(LONGEST_TEXT), nullable=False),
    Column("version", sorted_text(LONGEST_VERSION)),
    Column("hash", exact_text(HASH_LENGTH), nullable=False),
    Column("sweep", BigInteger, nullable=False),
    Column("fingerprint", BigInteger, nullable=False, server_default="0"),
    Column("body", Json, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("gone_at", UtcDateTime),
    Index(None, "source", "kind", "owner", "id"),
    Index(None, "source", "kind", "resource"),
    # Answers `changes` alone, without the rows, which are long.
    Index(None, "source", "kind", "owner", "gone_at", "changed_at"),
    # Answers `moments` alone, and finds what changed at some moments, for all owners.
    Index(None, "source", "kind", "changed_at", "id", "fingerprint"),
    **TABLE_OPTIONS,
)
"""Collected items. Rows are never removed; `gone_at` is set when the upstream no longer has the item."""


_MOST_ROWS = 1000
_MOST_CHARACTERS = 4 * 1024 * 1024

_GIVEN = ("source", "kind", "id", "owner", "resource", "version", "hash", "sweep", "fingerprint", "body")
_COLUMNS = ", ".join((*_GIVEN, "created_at", "changed_at"))
_REPLACED = ("owner", "resource", "version", "hash", "fingerprint", "body", "changed_at")

_IF_TAKEN = """
WHERE (excluded.version IS NULL OR documents.version IS NULL OR excluded.version >= documents.version)
  AND CASE WHEN documents.gone_at IS NULL THEN documents.hash <> excluded.hash
           ELSE excluded.sweep = 0 OR excluded.sweep > documents.sweep OR excluded.owner <> documents.owner END
"""


def _replace(greatest: str) -> str:
    columns = ", ".join(f"{name} = excluded.{name}" for name in _REPLACED)
    return f"""
ON CONFLICT (source, kind, id) DO UPDATE
SET {columns}, gone_at = NULL, sweep = {greatest}(documents.sweep, excluded.sweep)
{_IF_TAKEN}"""


_SQLITE = f"INSERT INTO documents ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {_replace('max')}"  # noqa: S608
_POSTGRESQL = f"""
INSERT INTO documents ({_COLUMNS})
SELECT $11::text, given.*, $10::timestamptz, $10::timestamptz
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::text[]
) AS given
{_replace("greatest")}"""  # noqa: S608
_MYSQL_ROW = "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_MYSQL_REPLACE = ", ".join(
    ["gone_at = NULL", "sweep = GREATEST(sweep, VALUES(sweep))", *(f"{name} = VALUES({name})" for name in _REPLACED)]
)


def write(tx: Transaction, source: str, given: Sequence[Document]) -> int:
    """Write documents of a source, each key once and sorted; returns how many are new, different or back."""
    match tx.dialect:
        case "sqlite":
            return sum(_write_sqlite(tx, source, part) for part in parts(given))
        case "postgresql":
            return sum(_write_postgresql(tx, source, part) for part in parts(given))
        case "mysql":
            return sum(_write_mysql(tx, source, part) for part in parts(given))


def _write_sqlite(tx: Transaction, source: str, given: Sequence[Document]) -> int:
    # The driver is used directly here, so the value must have the form that `UtcDateTime` writes.
    now = _without_zone(tx.now).isoformat(sep=" ", timespec="microseconds")
    return tx.execute_sql(_SQLITE, [(source, *_values(document), now, now) for document in given]).rowcount


def _write_postgresql(tx: Transaction, source: str, given: Sequence[Document]) -> int:
    columns = zip(*map(_values, given), strict=True)
    return tx.execute_sql(_POSTGRESQL, (*map(list, columns), tx.now, source)).rowcount


def _write_mysql(tx: Transaction, source: str, given: Sequence[Document]) -> int:
    # A document that is there, or that another transaction is about to commit, is left out and not counted.
    inserted = _insert_mysql(tx, source, given, "INSERT IGNORE", "")
    if inserted == len(given):
        return inserted
    # Includes the rows that were just inserted; the rule does not take them, because they are equal.
    present = _locked(tx, source, given)
    taken = [each for each in given if (old := present.get(each.key)) is None or is_taken(old, each)]
    if taken:
        _insert_mysql(tx, source, taken, "INSERT", f"ON DUPLICATE KEY UPDATE {_MYSQL_REPLACE}")
    return inserted + len(taken)


def _insert_mysql(tx: Transaction, source: str, given: Sequence[Document], verb: str, ending: str) -> int:
    now = _without_zone(tx.now)
    rows = ", ".join([_MYSQL_ROW] * len(given))
    values = tuple(value for document in given for value in (source, *_values(document), now, now))
    return tx.execute_sql(f"{verb} INTO documents ({_COLUMNS}) VALUES {rows} {ending}", values).rowcount


def _locked(tx: Transaction, source: str, given: Sequence[Document]) -> Mapping[tuple[str, str], StoredVersion]:
    c = documents.c
    present: dict[tuple[str, str], StoredVersion] = {}
    for kind, group in groupby(given, key=lambda document: document.kind):
        those = select(c.id, c.hash, c.version, c.sweep, c.owner, c.gone_at.is_not(None))
        those = those.where(
            c.source == source, c.kind == kind, c.id.in_([document.id for document in group])
        ).with_for_update()
        for row in tx.execute(those):
            present[kind, row[0]] = StoredVersion(row[1], row[2], row[3], row[4], bool(row[5]))
    return present


def _values(document: Document) -> tuple[Any, ...]:
    return (
        *(document.kind, document.id, document.owner, document.resource),
        *(document.version, document.hash, document.sweep, document.fingerprint, document.text),
    )


def parts(given: Sequence[Document]) -> Iterator[Sequence[Document]]:
    """Split rows into parts that a server accepts in one statement."""
    start = characters = 0
    for index, document in enumerate(given):
        # A single document is passed on even if it is larger than the limit.
        if index > start and (index - start == _MOST_ROWS or characters + len(document.text) > _MOST_CHARACTERS):
            yield given[start:index]
            start, characters = index, 0
        characters += len(document.text)
    if start < len(given):
        yield given[start:]


def _without_zone(moment: datetime) -> datetime:
    """Convert a time to the format of `UtcDateTime` on servers without time zones."""
    return moment.astimezone(UTC).replace(tzinfo=None)


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
        present = _lock_documents(tx, source, [each.document for each in left])
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


def _lock_documents(
    tx: Transaction, source: str, given: Sequence[Document]
) -> Mapping[tuple[str, str], LockedDocument]:
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
