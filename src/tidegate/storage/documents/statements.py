"""The one hot statement, in the words of each server: write many documents, and count those that changed.

Where a server can say "replace it only if" (SQLite, PostgreSQL), the rule of `store.is_taken` stands in the statement.
MySQL and MariaDB cannot, and cannot count either; there the rows are locked and the rule is applied here.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import select

from tidegate.storage.documents.document import Document
from tidegate.storage.documents.store import StoredVersion, is_taken
from tidegate.storage.documents.tables import documents
from tidegate.storage.sql import Transaction

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
    """As many at once as a server takes in one statement."""
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
    """As `UtcDateTime` writes it where the server knows no zones."""
    return moment.astimezone(UTC).replace(tzinfo=None)
