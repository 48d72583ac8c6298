"""Moves old history out of the database, a part at a time.

In this order: written under a name that follows from the content -> read back and compared -> noted and deleted, in one
transaction. Whoever dies in between leaves a file that the next one writes again, the same under the same name; nothing
is deleted that was not read back. Two who do it at once do the same.

Moves old history every night, and sees to the age of its files.

The leader's timekeeper calls, and sleeps until then.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo

import msgspec
from sqlalchemy import delete, select, tuple_

from tidegate.core.errors import InvalidSettings, ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import ARCHIVE_ENTRIES_MOVED
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots.archive.history import HistoryEntry, to_entry
from tidegate.systems.snapshots.settings import ArchiveSettings
from tidegate.systems.snapshots.tables import snapshot_archives, snapshot_history

if TYPE_CHECKING:
    from tidegate.systems.snapshots.archive.lifecycle import Lifecycle

log = get_logger(__name__)

MOST_ENTRIES = 5_000
MOST_BYTES = 64 * 1024 * 1024
"""What one file holds at most, and so what this process has to hold."""
_DELETED_AT_ONCE = 500
_c = snapshot_history.c


class ArchiveStorage(Protocol):
    """Where files go; `ObjectStorage` is one."""

    async def put(self, name: str, content: bytes) -> None:
        """Write a file, all of it or nothing, for good."""
        ...

    async def get(self, name: str) -> bytes:
        """All of a file."""
        ...


class ArchiveCorrupted(Unavailable):
    """A file did not come back as it was written; nothing was deleted."""


class ArchivePart(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into one file: of one kind and day, in the order of the keys."""

    kind: str
    day: date
    entries: Sequence[HistoryEntry]


class HistoryMover:
    """Moves the history of whole days."""

    def __init__(
        self,
        database: Database,
        storage: ArchiveStorage,
        *,
        most_entries: int = MOST_ENTRIES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._database, self._storage = database, storage
        self._most_entries, self._most_bytes = most_entries, most_bytes

    async def move_some(self, older_than: datetime) -> int:
        """Move one file's worth of days that were over then; tells how many entries that were, 0: none are left."""
        from tidegate.systems.snapshots.archive import parquet  # here, since it needs the extra

        part = await self._database.read(next_part, first_day_kept(older_than), self._most_entries, self._most_bytes)
        if part is None:
            return 0
        name = parquet.name_of(part.kind, part.day, part.entries)
        content = await asyncio.to_thread(parquet.encode, part.entries)
        await self._storage.put(name, content)
        if await self._storage.get(name) != content:
            raise ArchiveCorrupted(f"{name} did not come back from the archive as it was written")
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


def next_part(tx: Transaction, before: date, most_entries: int, most_bytes: int) -> ArchivePart | None:
    """The oldest history of days earlier than `before`; always the same until it is deleted."""
    oldest = select(_c.day, _c.kind).where(_c.day < before).order_by(_c.day, _c.kind).limit(1)
    while (first := tx.execute(oldest).first()) is not None:
        if entries := _entries(tx, first.day, first.kind, most_entries, most_bytes):
            return ArchivePart(kind=first.kind, day=first.day, entries=entries)
        # Where each statement sees the latest, somebody else may have moved them between the two.
    return None


def _entries(tx: Transaction, day: date, kind: str, most_entries: int, most_bytes: int) -> list[HistoryEntry]:
    of_part = (_c.day == day, _c.kind == kind)
    sizes = tx.execute(select(_c.size).where(*of_part).order_by(_c.key, _c.version).limit(most_entries)).scalars()
    columns = select(_c.key, _c.version, _c.changed_at, _c.hash, _c.body).where(*of_part)
    rows = tx.execute(columns.order_by(_c.key, _c.version).limit(_how_many(list(sizes), most_bytes)))
    return list(map(to_entry, rows))


def forget(tx: Transaction, part: ArchivePart, name: str, size: int) -> None:
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


_DAY = timedelta(days=1)


class NightlyArchive:
    """A source of the timekeeper. A night in which no process ran is made up for when the next leader starts."""

    def __init__(
        self,
        database: Database,
        open_storage: Callable[[], ArchiveStorage],
        settings: ArchiveSettings,
        open_lifecycle: Callable[[], "Lifecycle | None"] = lambda: None,
    ) -> None:
        """`open_storage` is called when there is something to move, `open_lifecycle` when something was moved."""
        self._database, self._open_storage, self._settings = database, open_storage, settings
        self._open_lifecycle, self._is_aged = open_lifecycle, False
        self._due_at: datetime | None = None
        self._mover: HistoryMover | None = None

    async def fire(self) -> int | None:
        """Move a part, if it is time; return in how many ms there is more to do."""
        now = self._database.clock.now()
        if self._due_at is None:
            self._due_at = now if await self._missed_a_night(now) else next_night(now, self._settings)
        if now >= self._due_at:
            if await self._move_some(now):
                return 0
            self._due_at, self._is_aged = next_night(now, self._settings), False
        if not self._is_aged:  # every night, and when a process begins to lead
            if await self._age_some(now):
                return 0
            self._is_aged = True
        return max(0, math.ceil((self._due_at - now) / timedelta(milliseconds=1)))

    async def _move_some(self, now: datetime) -> bool:
        older_than = now - self._settings.after
        oldest = await self._database.read(oldest_day)
        if oldest is None or oldest >= first_day_kept(older_than):
            return False
        self._mover = self._mover or HistoryMover(self._database, self._open_storage())
        return await self._mover.move_some(older_than) > 0

    async def _age_some(self, now: datetime) -> bool:
        """See that old files become cold and are deleted; True where there is more of it."""
        from tidegate.systems.snapshots.archive import lifecycle  # here, since it needs the extra

        today, settings = now.astimezone(UTC).date(), self._settings
        if not await self._database.read(lifecycle.has_files):
            return False
        try:
            applied = self._open_lifecycle()
            has_more = applied is not None and await applied.apply(today)
        except (ServerRefused, InvalidSettings) as error:  # an operator has to act; moving goes on meanwhile
            log.warning("archive.lifecycle_refused", error=str(error))
            return False
        if has_more or settings.delete_after is None:
            return has_more
        # Behind the files: a file without a row is deleted all the same, a row without a file is read as empty.
        return await self._database.transaction(lifecycle.forget_deleted, today - settings.delete_after) > 0

    async def _missed_a_night(self, now: datetime) -> bool:
        oldest = await self._database.read(oldest_day)
        return oldest is not None and oldest < first_day_kept(now - self._settings.after - _DAY)

    def __repr__(self) -> str:
        return f"NightlyArchive({self._settings.at})"


def next_night(now: datetime, settings: ArchiveSettings) -> datetime:
    """The next time of day at which the archive is due, in UTC."""
    zone = ZoneInfo(settings.timezone)
    today = now.astimezone(zone).date()
    times = (datetime.combine(today + n * _DAY, settings.time_of_day, zone).astimezone(UTC) for n in range(3))
    return next(moment for moment in times if moment > now)
