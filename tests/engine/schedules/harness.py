"""A source that has something to do for most people, a clock that can be shifted, and what stands around them."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import select

from tidegate.connections import build_context
from tidegate.core.clock import Clock
from tidegate.core.errors import NoCredential
from tidegate.engine.job_store import StoredJob
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.schedules.due import DueSchedules, Triggers
from tidegate.engine.schedules.store import Schedule, Schedules
from tidegate.engine.source import JobSpec, Reading, Source, Subject, Task
from tidegate.engine.tables import collection_runs
from tidegate.engine.upstream import Answer, Request
from tidegate.primitives.gate import Allowance
from tidegate.settings import Settings
from tidegate.storage.documents import Document
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.system import Context

POOL = "clockmakers"
NIGHTLY = "0 3 * * *"


class ScheduledSource:
    """One job for everybody; `broken` raises, and the job of `unwritable` is no JSON."""

    name = "clockwork"
    planning_kinds = frozenset[str]()

    def __init__(self, *, misbehaves: bool = True) -> None:
        self._misbehaves = misbehaves

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        if self._misbehaves and subject.login == "broken":
            raise LookupError("the source has a defect")
        params = {"what": object()} if self._misbehaves and subject.login == "unwritable" else {}
        return [JobSpec(kind="TICK", resource=f"user:{subject.login}", params=params)]

    def request(self, task: Task, secret: str) -> Request:
        return Request(url=f"http://clock.test/{task.user_id}", purpose="tick", headers={"Authorization": secret})

    def read(self, task: Task, answer: Answer) -> Reading:
        document = Document.of(
            "tick", f"{task.user_id}-{task.run_id}", owner=task.user_id, resource=task.spec.resource, body={"n": 1}
        )
        said = Allowance(limit=1000, remaining=999, window=4_000_000_000, resets_in_ms=3_600_000)
        return Reading(documents=[document], allowance=said)


SOURCES: dict[str, Source] = {"clockwork": ScheduledSource()}
FORGIVING: dict[str, Source] = {"clockwork": ScheduledSource(misbehaves=False)}
"""What lets a schedule in that cannot run later on."""


async def pool_for(source: str, user_id: str) -> str:
    """Everybody is served by one pool, but for two: `endless` has one whose name no table takes."""
    assert source == "clockwork"
    if user_id == "endless":
        return "x" * 250
    if user_id == "unserved":
        raise NoCredential("there is no valid credential for 'unserved'")
    return POOL


class ShiftedClock:
    """The machine's clock, set to another time."""

    def __init__(self, to: datetime) -> None:
        self._by = to - datetime.now(UTC)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._by

    @property
    def pinned_ms(self) -> None:
        return


class ScheduleHarness:
    """Schedules in one process that leads, and what the tests want to know of them."""

    def __init__(self, parts: Context) -> None:
        self.parts, self.database = parts, parts.database
        self.doubts = 0
        self.orchestrator = Orchestrator(self.database, parts.gate, SOURCES)
        triggers = Triggers(self.database, SOURCES, pool_for=pool_for, orchestrator=self.orchestrator)
        self.schedules = Schedules(self.database, FORGIVING, parts.timers.wakeup, triggers.fire)
        self.due = self.due_with(self.orchestrator.offer)

    def due_with(self, offer: Callable[[Sequence[StoredJob]], Awaitable[None]]) -> DueSchedules:
        return DueSchedules(self.database, SOURCES, pool_for=pool_for, offer=offer, on_unknown_outcome=self._doubt)

    def _doubt(self) -> None:
        self.doubts += 1

    async def add(self, *logins: str, cron: str = NIGHTLY, timezone: str = "UTC", **options: Any) -> list[Schedule]:
        subjects = [Subject(user_id=login, login=login, options=options) for login in logins]
        return await self.schedules.add("clockwork", subjects, cron=cron, timezone=timezone)

    async def fire_all(self) -> int | None:
        while (next_in_ms := await self.due.fire()) == 0:
            pass
        return next_in_ms

    async def runs(self) -> list[Any]:
        return await self.database.read(_runs)

    async def offered(self) -> int:
        return sum((await self.parts.gate.status(POOL)).waiting.values())

    async def end_runs(self) -> None:
        """As if everything of them were done."""
        await self.database.transaction(_end_runs)


def _runs(tx: Transaction) -> list[Any]:
    return list(tx.execute(select(collection_runs).order_by(collection_runs.c.id)))


def _end_runs(tx: Transaction) -> None:
    tx.execute(collection_runs.update().values(status="completed", active_key=None))


@asynccontextmanager
async def harness_at(url: str, valkey: Valkey, clock: Clock) -> AsyncGenerator[ScheduleHarness]:
    async with await Database.open(url, clock=clock) as database:
        yield ScheduleHarness(build_context(Settings(), valkey, database))


def answer_to(request: Request) -> Answer:
    from multidict import CIMultiDict, CIMultiDictProxy

    return Answer(
        status=200,
        headers=CIMultiDictProxy(CIMultiDict[str]()),
        url=request.url,
        received_at=datetime.now(UTC),
        body=msgspec.json.encode({}),
        elapsed_ms=0.0,
    )


HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
