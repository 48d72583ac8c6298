"""Reads the history of a subject, newest first: from the database, then from the archive."""

import asyncio
from collections.abc import Callable
from datetime import date, datetime
from io import RawIOBase
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import msgspec
from sqlalchemy import select

from tidegate.core.arguments import require_positive
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots.model import SnapshotSubject, unpack
from tidegate.systems.snapshots.tables import snapshot_archives, snapshot_history


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a snapshot, valid from `changed_at`."""

    key: str
    version: int
    changed_at: datetime
    hash: str
    body: bytes
    """JSON as it was stored."""
    is_archived: bool = False

    @property
    def size(self) -> int:
        """Size of the body."""
        return len(self.body)


log = get_logger(__name__)

_c, _files = snapshot_history.c, snapshot_archives.c


def to_entry(row: Any) -> HistoryEntry:
    """Convert a row of `snapshot_history`."""
    return HistoryEntry(
        key=row.key, version=row.version, changed_at=row.changed_at, hash=row.hash, body=unpack(row.body)
    )


class ReadableStorage(Protocol):
    """Storage of archive files; implemented by `ObjectStorage`."""

    def open(self, name: str, size: int) -> RawIOBase:
        """Open a file; its parts are read on demand, which blocks."""
        ...


class SnapshotHistory:
    """The history of all subjects."""

    def __init__(self, database: Database, open_storage: Callable[[], ReadableStorage]) -> None:
        """`open_storage` is called when the database does not have enough entries."""
        self._database, self._open_storage = database, open_storage
        self._storage: ReadableStorage | None = None

    async def of(self, subject: SnapshotSubject, *, limit: int = 50) -> list[HistoryEntry]:
        """Return the last `limit` changes, newest first. An entry that is being archived is returned once."""
        require_positive("limit", limit)
        # The database first: an entry that is moved meanwhile is found in both rather than in neither.
        found = {each.version: each for each in await self._database.read(_recent, subject, limit)}
        if len(found) < limit:
            files = await self._database.read(_files_of, subject)
            # Any file of a day may have the newest entry, so only whole days can be skipped.
            for _, of_day in groupby(files, key=itemgetter(0)):
                for _, name, size in of_day:
                    for each in await self._archived(name, size, subject.key):
                        found.setdefault(each.version, each)
                if len(found) >= limit:
                    break
        return [found[version] for version in sorted(found, reverse=True)[:limit]]

    async def _archived(self, name: str, size: int, key: str) -> list[HistoryEntry]:
        from tidegate.systems.snapshots.archive import object_storage  # needs the extra `archive`
        from tidegate.systems.snapshots.archive.object_storage import FileGone, FileNeedsRestore

        self._storage = self._storage or self._open_storage()
        try:
            return await asyncio.to_thread(object_storage.read_subject, self._storage.open(name, size), key)
        except FileGone:  # deleted by its lifecycle or by hand
            log.warning("archive.file_gone", file=name)
            return []
        except FileNeedsRestore:
            log.warning("archive.file_cold", file=name)
            return []


def _recent(tx: Transaction, subject: SnapshotSubject, limit: int) -> list[HistoryEntry]:
    columns = select(_c.key, _c.version, _c.changed_at, _c.hash, _c.body)
    rows = columns.where(_c.kind == subject.kind, _c.key == subject.key).order_by(_c.version.desc()).limit(limit)
    return list(map(to_entry, tx.execute(rows)))


def _files_of(tx: Transaction, subject: SnapshotSubject) -> list[tuple[date, str, int]]:
    """Return files that may have entries of the subject, the newest day first."""
    files = select(_files.day, _files.name, _files.bytes).where(
        _files.kind == subject.kind, _files.first_key <= subject.key, _files.last_key >= subject.key
    )
    return [(row[0], row[1], row[2]) for row in tx.execute(files.order_by(_files.day.desc(), _files.name))]
