"""A table of subjects and a planner, with a manual clock and requests that are only recorded."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import select, update

from tidegate.core.clock import ManualClock
from tidegate.core.errors import TidegateError
from tidegate.primitives.coalescer import AlreadyProcessing, Outcome, Published
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch import queries
from tidegate.systems.snapshots.prefetch.planner import PrefetchPlanner
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.settings import PrefetchSettings
from tidegate.systems.snapshots.store import Refreshed
from tidegate.systems.snapshots.tables import snapshots

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
TODAY = date(2026, 11, 15)


class Requests:
    """Records requests. A request of a subject that is not done yet is coalesced, as the coalescer does."""

    def __init__(self) -> None:
        self.published: list[RefreshRequest] = []
        self.coalesced: list[RefreshRequest] = []
        self.under_way: set[SnapshotSubject] = set()
        self.trouble: Callable[[RefreshRequest], TidegateError | None] = lambda _: None

    async def publish_many(self, requests: Sequence[RefreshRequest]) -> list[Outcome | TidegateError]:
        return [self._publish(request) for request in requests]

    def _publish(self, request: RefreshRequest) -> Outcome | TidegateError:
        if (error := self.trouble(request)) is not None:
            return error
        if request.subject in self.under_way:
            self.coalesced.append(request)
            return AlreadyProcessing(request.known_version)
        self.published.append(request)
        self.under_way.add(request.subject)
        return Published(request.known_version + 1, "token")


class Planning:
    """What a test of the planner needs."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.database, self.clock, self.requests = database, clock, Requests()
        self._version = 0

    def planner(self, **given: object) -> PrefetchPlanner:
        return PrefetchPlanner(self.database, self.requests, PrefetchSettings.model_validate(given))

    async def check(self, keys: Sequence[str], body: bytes = b"{}") -> None:
        """What a refresh leaves behind: rows that were checked now."""
        self._version += 1
        now = self.clock.now()
        subjects = [SnapshotSubject("character", key) for key in keys]
        await self.database.transaction(
            store.write_round, [Refreshed.of(each, self._version, checked_at=now, body=body) for each in subjects]
        )
        self.requests.under_way.difference_update(subjects)

    async def finish(self) -> None:
        """Have everything done that was published."""
        if self.requests.under_way:
            await self.check(sorted(each.key for each in self.requests.under_way))

    async def due(self, key: str) -> datetime | None:
        def read(tx: Transaction) -> datetime | None:
            return tx.execute(select(snapshots.c.next_due_at).where(snapshots.c.key == key)).scalar_one()

        return await self.database.read(read)

    async def learned(self, key: str) -> tuple[float | None, int]:
        """The rate and the changes of a row."""

        def read(tx: Transaction) -> tuple[float | None, int]:
            columns = select(snapshots.c.change_rate, snapshots.c.changes)
            row = tx.execute(columns.where(snapshots.c.key == key)).one()
            return row.change_rate, row.changes

        return await self.database.read(read)

    async def tiers(self) -> dict[str, int]:
        """The lane of every row."""

        def read(tx: Transaction) -> dict[str, int]:
            return {row.key: row.tier for row in tx.execute(select(snapshots.c.key, snapshots.c.tier))}

        return await self.database.read(read)

    async def set_due(self, keys: Sequence[str], at: datetime) -> None:
        def write(tx: Transaction) -> None:
            tx.execute(update(snapshots).where(snapshots.c.key.in_(keys)).values(next_due_at=at))

        await self.database.transaction(write)

    async def spent(self, day: date = TODAY) -> int:
        return await self.database.read(queries.spent_on, day)

    async def run_for(
        self, planner: PrefetchPlanner, span: timedelta, *, finishes: bool = True
    ) -> list[tuple[datetime, int]]:
        """Fire as the timekeeper does, for so long by the clock; tells when how many were published."""
        until, fired = self.clock.now() + span, list[tuple[datetime, int]]()
        while True:
            before = len(self.requests.published)
            wait_ms = await planner.fire()
            if (count := len(self.requests.published) - before) > 0:
                fired.append((self.clock.now(), count))
            if finishes:
                await self.finish()
            wait = timedelta(minutes=15) if wait_ms is None else timedelta(milliseconds=min(wait_ms, 900_000))
            if self.clock.now() + wait >= until:
                return fired
            self.clock.advance(wait)


@asynccontextmanager
async def planning_at(url: str) -> AsyncGenerator[Planning]:
    """On a database that has all tables."""
    clock = ManualClock(NOON)
    async with await Database.open(url, clock=clock) as database:
        yield Planning(database, clock)
