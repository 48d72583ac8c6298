"""Moves old history out of the database, a part at a time.

In this order: written under a name that follows from the content -> read back and compared -> noted and deleted, in one
transaction. Whoever dies in between leaves a file that the next one writes again, the same under the same name; nothing
is deleted that was not read back. Two who do it at once do the same.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, Protocol

import msgspec
from sqlalchemy import delete, select, tuple_

from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import ARCHIVE_ENTRIES_MOVED
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots.archive.entry import Entry
from tidegate.systems.snapshots.archive.tables import snapshot_archives
from tidegate.systems.snapshots.bodies import unpack
from tidegate.systems.snapshots.tables import snapshot_history

log = get_logger(__name__)

MOST_ENTRIES = 5_000
MOST_BYTES = 64 * 1024 * 1024
"""What one file holds at most, and so what this process has to hold."""
_DELETED_AT_ONCE = 500
_c = snapshot_history.c


class Storage(Protocol):
    """Where files go; `ObjectStorage` is one."""

    async def put(self, name: str, content: bytes) -> None:
        """Write a file, all of it or nothing, for good."""
        ...

    async def get(self, name: str) -> bytes:
        """All of a file."""
        ...


class NotAsWritten(Unavailable):
    """A file did not come back as it was written; nothing was deleted."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into one file: of one kind and day, in the order of the keys."""

    kind: str
    day: date
    entries: Sequence[Entry]


class Mover:
    """Moves the history of whole days."""

    def __init__(
        self, database: Database, storage: Storage, *, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._database, self._storage = database, storage
        self._most_entries, self._most_bytes = most_entries, most_bytes

    async def move_some(self, older_than: datetime) -> int:
        """Move one file's worth of days that were over then; tells how many entries that were, 0: none are left."""
        from tidegate.systems.snapshots.archive import parts  # here, since it needs the extra

        part = await self._database.read(next_part, first_day_kept(older_than), self._most_entries, self._most_bytes)
        if part is None:
            return 0
        name = parts.name_of(part.kind, part.day, part.entries)
        content = await asyncio.to_thread(parts.encode, part.entries)
        await self._storage.put(name, content)
        if await self._storage.get(name) != content:
            raise NotAsWritten(f"{name} did not come back from the archive as it was written")
        await self._database.transaction(forget, part, name, len(content))
        ARCHIVE_ENTRIES_MOVED.inc(len(part.entries))
        log.info("archive.moved", file=name, entries=len(part.entries), bytes=len(content))
        return len(part.entries)


def first_day_kept(older_than: datetime) -> date:
    """Days before this one, in UTC, were over at that time."""
    return older_than.astimezone(UTC).date()


def oldest_day(tx: Transaction) -> date | None:
    """The first day of which there is history in the database."""
    return tx.execute(select(_c.day).order_by(_c.day).limit(1)).scalar_one_or_none()


def next_part(tx: Transaction, before: date, most_entries: int, most_bytes: int) -> Part | None:
    """The oldest history of days earlier than `before`; always the same until it is deleted."""
    oldest = select(_c.day, _c.kind).where(_c.day < before).order_by(_c.day, _c.kind).limit(1)
    while (first := tx.execute(oldest).first()) is not None:
        if entries := _entries(tx, first.day, first.kind, most_entries, most_bytes):
            return Part(kind=first.kind, day=first.day, entries=entries)
        # Where each statement sees the latest, somebody else may have moved them between the two.
    return None


def _entries(tx: Transaction, day: date, kind: str, most_entries: int, most_bytes: int) -> list[Entry]:
    of_part = (_c.day == day, _c.kind == kind)
    sizes = tx.execute(select(_c.size).where(*of_part).order_by(_c.key, _c.version).limit(most_entries)).scalars()
    columns = select(_c.key, _c.version, _c.changed_at, _c.hash, _c.body).where(*of_part)
    rows = tx.execute(columns.order_by(_c.key, _c.version).limit(_how_many(list(sizes), most_bytes)))
    return list(map(to_entry, rows))


def to_entry(row: Any) -> Entry:
    """A row of the table."""
    return Entry(key=row.key, version=row.version, changed_at=row.changed_at, hash=row.hash, body=unpack(row.body))


def forget(tx: Transaction, part: Part, name: str, size: int) -> None:
    """Note where the part is, and delete exactly what it holds. Doing it again changes nothing."""
    row = {
        "name": name,
        "kind": part.kind,
        "day": part.day,
        "first_key": part.entries[0].key,
        "last_key": part.entries[-1].key,
        "entries": len(part.entries),
        "bytes": size,
        "archived_at": tx.now,
    }
    tx.insert_many(snapshot_archives, [row], skip_existing=True)
    for start in range(0, len(part.entries), _DELETED_AT_ONCE):
        some = [(each.key, each.version) for each in part.entries[start : start + _DELETED_AT_ONCE]]
        # Named apart as well: SQLite finds no index for pairs.
        of_keys = (_c.kind == part.kind, _c.key.in_(sorted({key for key, _ in some})))
        tx.execute(delete(snapshot_history).where(*of_keys, tuple_(_c.key, _c.version).in_(some)))


def _how_many(sizes: Sequence[int], most_bytes: int) -> int:
    """As many as fit, and one at least."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > most_bytes:
            return count
    return len(sizes)
