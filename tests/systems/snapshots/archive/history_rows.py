"""Subjects with old and recent changes."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select

from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.archive.archiver import ArchiveStorage, HistoryMover
from tidegate.systems.snapshots.archive.history import HistoryEntry, SnapshotHistory
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.store import Refreshed
from tidegate.systems.snapshots.tables import snapshot_history

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
OLD = timedelta(days=30)
KINDS = ("character", "guild of ß%ü")


def body(subject: SnapshotSubject, days_ago: int) -> bytes:
    return b'{"key": "%s", "days_ago": %d}' % (subject.key.encode(), days_ago)


class ArchiveHarness:
    """What a test of the archive needs."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def change(self, subjects: Sequence[SnapshotSubject], days_ago: int) -> None:
        """Each of them changed then; the version tells when, too."""
        results = [
            Refreshed.of(each, 1000 - days_ago, checked_at=NOON - timedelta(days=days_ago), body=body(each, days_ago))
            for each in subjects
        ]
        await self.database.transaction(store.write_round, results)

    async def fill(self, keys: int = 12, days: Sequence[int] = (70, 45, 44, 31, 30, 29, 2)) -> list[SnapshotSubject]:
        subjects = [SnapshotSubject(kind, f"k {n:02}") for kind in KINDS for n in range(keys)]
        for days_ago in days:
            await self.change(subjects, days_ago)
        return subjects

    async def rows(self) -> int:
        def count(tx: Transaction) -> int:
            return tx.execute(select(func.count()).select_from(snapshot_history)).scalar_one()

        return await self.database.read(count)

    async def move_all(self, storage: ArchiveStorage, *, most_entries: int = 5) -> int:
        mover, moved = HistoryMover(self.database, storage, most_entries=most_entries), 0
        while some := await mover.move_some(NOON - OLD):
            moved += some
        return moved

    async def history(self, storage: ObjectStorage, subject: SnapshotSubject, limit: int = 50) -> list[HistoryEntry]:
        return await SnapshotHistory(self.database, lambda: storage).of(subject, limit=limit)


@asynccontextmanager
async def harness_at(url: str) -> AsyncGenerator[ArchiveHarness]:
    """On a database that has all tables."""
    async with await Database.open(url, clock=ManualClock(NOON)) as database:
        yield ArchiveHarness(database)
