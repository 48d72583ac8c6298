"""Moves old history from the database to files every night, one file at a time.

The steps are: write a file under a name derived from its content, read it back and compare, then record the file and
delete its rows in one transaction. After a crash, or when two processes run at once, the same file is written again
under the same name. No row is deleted that was not read back from its file.
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
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots.archive.history import HistoryEntry, to_entry
from tidegate.systems.snapshots.metrics import ARCHIVE_ENTRIES_MOVED
from tidegate.systems.snapshots.settings import ArchiveSettings
from tidegate.systems.snapshots.tables import snapshot_archives, snapshot_history

if TYPE_CHECKING:
    from tidegate.systems.snapshots.archive.lifecycle import Lifecycle

log = get_logger(__name__)

MOST_ENTRIES = 5_000
MOST_BYTES = 64 * 1024 * 1024
"""Maximum content of one file, which this process holds in memory."""
_DELETED_AT_ONCE = 500
_c = snapshot_history.c


class ArchiveStorage(Protocol):
    """Storage of archive files; implemented by `ObjectStorage`."""

    async def put(self, name: str, content: bytes) -> None:
        """Write a file atomically and durably."""
        ...

    async def get(self, name: str) -> bytes:
        """Return the content of a file."""
        ...


class ArchiveCorrupted(Unavailable):
    """A file read back differs from what was written; no row was deleted."""


class ArchivePart(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of one file: one kind and day, in key order."""

    kind: str
    day: date
    entries: Sequence[HistoryEntry]


class HistoryMover:
    """Moves the history of whole days to files."""

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
        """Move the entries of one file, of days that ended before `older_than`; return their number."""
        from tidegate.systems.snapshots.archive import object_storage  # needs the extra `archive`

        # 1. Choose the entries. The choice depends only on the rows, so that a repeated step writes the same file.
        part = await self._database.read(next_part, first_day_kept(older_than), self._most_entries, self._most_bytes)
        if part is None:
            return 0
        # 2. Write the file and read it back, before any row is deleted.
        name = object_storage.name_of(part.kind, part.day, part.entries)
        content = await asyncio.to_thread(object_storage.encode, part.entries)
        await self._storage.put(name, content)
        if await self._storage.get(name) != content:
            raise ArchiveCorrupted(f"{name}: the content read back from the archive differs from what was written")
        # 3. Record the file and delete its rows in one transaction: a reader finds each entry in at
        # least one of the two places.
        await self._database.transaction(forget, part, name, len(content))
        ARCHIVE_ENTRIES_MOVED.inc(len(part.entries))
        log.info("archive.moved", file=name, entries=len(part.entries), bytes=len(content))
        return len(part.entries)


def first_day_kept(older_than: datetime) -> date:
    """Return the first UTC day that had not ended at `older_than`."""
    return older_than.astimezone(UTC).date()


def oldest_day(tx: Transaction) -> date | None:
    """Return the first day with history in the database."""
    return tx.execute(select(_c.day).order_by(_c.day).limit(1)).scalar_one_or_none()


def next_part(tx: Transaction, before: date, most_entries: int, most_bytes: int) -> ArchivePart | None:
    """Return the oldest entries of days before `before`: always the same until they are deleted."""
    oldest = select(_c.day, _c.kind).where(_c.day < before).order_by(_c.day, _c.kind).limit(1)
    while (first := tx.execute(oldest).first()) is not None:
        if entries := _entries(tx, first.day, first.kind, most_entries, most_bytes):
            return ArchivePart(kind=first.kind, day=first.day, entries=entries)
        # With read committed, another process may have moved them between the two statements.
    return None


def _entries(tx: Transaction, day: date, kind: str, most_entries: int, most_bytes: int) -> list[HistoryEntry]:
    of_part = (_c.day == day, _c.kind == kind)
    # Read the sizes first: a batch is limited by bytes, and bodies must not be loaded only to be dropped.
    sizes = tx.execute(select(_c.size).where(*of_part).order_by(_c.key, _c.version).limit(most_entries)).scalars()
    columns = select(_c.key, _c.version, _c.changed_at, _c.hash, _c.body).where(*of_part)
    rows = tx.execute(columns.order_by(_c.key, _c.version).limit(_count_fitting(list(sizes), most_bytes)))
    return list(map(to_entry, rows))


def forget(tx: Transaction, part: ArchivePart, name: str, size: int) -> None:
    """Record a file and delete exactly the rows it holds. Idempotent."""
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
    # After a crash before the commit, or beside a second leader, the file may be recorded already.
    tx.insert_many(snapshot_archives, [row], skip_existing=True)
    for start in range(0, len(part.entries), _DELETED_AT_ONCE):
        some = [(each.key, each.version) for each in part.entries[start : start + _DELETED_AT_ONCE]]
        # Also by key alone: SQLite uses no index for pairs.
        of_keys = (_c.kind == part.kind, _c.key.in_(sorted({key for key, _ in some})))
        tx.execute(delete(snapshot_history).where(*of_keys, tuple_(_c.key, _c.version).in_(some)))


def _count_fitting(sizes: Sequence[int], most_bytes: int) -> int:
    """Return how many of the first entries fit into `most_bytes` together; at least one if there are any."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        # The first entry is always taken. Otherwise one body above the limit would stop the archive.
        if count and total > most_bytes:
            return count
    return len(sizes)


_DAY = timedelta(days=1)


class NightlyArchive:
    """Due source of the leader. A night in which no process ran is caught up when the next leader starts."""

    def __init__(
        self,
        database: Database,
        open_storage: Callable[[], ArchiveStorage],
        settings: ArchiveSettings,
        open_lifecycle: Callable[[], "Lifecycle | None"] = lambda: None,
    ) -> None:
        """`open_storage` is called when there is history to move, `open_lifecycle` when there are files."""
        self._database, self._open_storage, self._settings = database, open_storage, settings
        self._open_lifecycle, self._is_aged = open_lifecycle, False
        self._due_at: datetime | None = None
        self._mover: HistoryMover | None = None

    async def fire(self) -> int | None:
        """Move one file if it is time; return in how many ms to call again."""
        now = self._database.clock.now()
        # First call of this leader: find out whether the previous night was missed.
        if self._due_at is None:
            self._due_at = now if await self._missed_a_night(now) else next_night(now, self._settings)
        if now >= self._due_at:
            if await self._move_some(now):
                return 0
            self._due_at, self._is_aged = next_night(now, self._settings), False
        if not self._is_aged:  # every night, and when a process becomes the leader
            if await self._age_some(now):
                return 0
            self._is_aged = True
        return max(0, math.ceil((self._due_at - now) / timedelta(milliseconds=1)))

    async def _move_some(self, now: datetime) -> bool:
        # The storage is opened only if there is something to move: an installation without
        # history needs no credentials.
        older_than = now - self._settings.after
        oldest = await self._database.read(oldest_day)
        if oldest is None or oldest >= first_day_kept(older_than):
            return False
        self._mover = self._mover or HistoryMover(self._database, self._open_storage())
        return await self._mover.move_some(older_than) > 0

    async def _age_some(self, now: datetime) -> bool:
        """Apply the lifecycle to old files; True if there is more to do."""
        from tidegate.systems.snapshots.archive import lifecycle  # needs the extra `archive`

        today, settings = now.astimezone(UTC).date(), self._settings
        if not await self._database.read(lifecycle.has_files):
            return False
        try:
            applied = self._open_lifecycle()
            has_more = applied is not None and await applied.apply(today)
        except (ServerRefused, InvalidSettings) as error:  # needs an operator; moving continues
            log.warning("archive.lifecycle_refused", error=str(error))
            return False
        if has_more or settings.delete_after is None:
            return has_more
        # After the files: a file without a row is still deleted, and a row without a file is read as empty.
        return await self._database.transaction(lifecycle.delete_rows, today - settings.delete_after) > 0

    async def _missed_a_night(self, now: datetime) -> bool:
        oldest = await self._database.read(oldest_day)
        return oldest is not None and oldest < first_day_kept(now - self._settings.after - _DAY)

    def __repr__(self) -> str:
        return f"NightlyArchive({self._settings.at})"


def next_night(now: datetime, settings: ArchiveSettings) -> datetime:
    """Return when the archive is due next, in UTC."""
    zone = ZoneInfo(settings.timezone)
    today = now.astimezone(zone).date()
    times = (datetime.combine(today + n * _DAY, settings.time_of_day, zone).astimezone(UTC) for n in range(3))
    return next(moment for moment in times if moment > now)
