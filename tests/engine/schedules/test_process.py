"""A whole process: the leader sleeps until a schedule is due, and workers do what it begins."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.engine.schedules.harness import FORGIVING, POOL, ScheduleHarness, ShiftedClock, answer_to, pool_for
from tests.servers.migrated import migrated_file
from tests.servers.valkey import empty_valkey
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.engine.lifecycle import RunState
from tidegate.engine.schedules.due import DueSchedules
from tidegate.engine.schedules.store import Schedules
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.upstream import Answer, Permit, Request
from tidegate.primitives.gate import CredentialLimits
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.sql import Database


class Upstream:
    """Answers at once, and remembers when it was called."""

    def __init__(self, clock: ShiftedClock) -> None:
        self._clock = clock
        self.called_at: list[datetime] = []
        self.called = asyncio.Event()

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        self.called_at.append(self._clock.now())
        self.called.set()
        return answer_to(request)

    async def secret_of(self, credential: str) -> str:
        return f"secret of {credential}"


@asynccontextmanager
async def at_work(url: str, valkey_url: str, clock: ShiftedClock) -> AsyncGenerator[tuple[ScheduleHarness, Upstream]]:
    async with empty_valkey(valkey_url) as valkey, await Database.open(url, clock=clock) as database:
        parts, upstream = build_context(Settings(), valkey, database), Upstream(clock)

        async def register() -> None:
            await parts.gate.register("clockmaker", pool=POOL, limits=CredentialLimits(floor=0))

        collector = Collector(
            CollectDependencies(database, parts.gate, parts.jobs, parts.owner, SqlDocuments(database)),
            list(FORGIVING.values()),
            caller=upstream,
            secrets=upstream,
            register_credentials=register,
        )
        due = DueSchedules(
            database,
            FORGIVING,
            pool_for=pool_for,
            offer=collector.orchestrator.offer,
            on_unknown_outcome=collector.recovery_service.notify,
        )
        process = build_process(
            parts,
            handlers=collector.handlers,
            services=collector.services,
            sources=[due],
            leader_services={"recovery": collector.recovery_service},
        )
        running = asyncio.create_task(process.run())
        try:
            yield ScheduleHarness(parts), upstream
        finally:
            process.stop()
            assert (await running).is_clean


async def test_the_leader_sleeps_until_a_schedule_added_by_another_process_is_due(tmp_path: Path, embedded_url: str):
    """It is a few seconds before three when somebody else adds it, and the leader has nothing planned."""
    three = datetime(2026, 5, 1, 3, tzinfo=UTC)
    clock = ShiftedClock(three - timedelta(seconds=2.5))
    url = await migrated_file(tmp_path / "tidegate.db")
    async with at_work(url, embedded_url, clock) as (harness, upstream):
        async with await Database.open(url, clock=clock) as another:
            schedules = Schedules(another, FORGIVING, harness.parts.timers.wakeup)
            [added] = await schedules.add("clockwork", [Subject(user_id="ada", login="ada")], cron="0 3 * * *")
        assert added.next_at == three
        async with patience():
            await upstream.called.wait()
            while (await harness.runs())[0].status != RunState.COMPLETED:
                await look_again()

        [called_at] = upstream.called_at
        assert timedelta(0) <= called_at - three < timedelta(seconds=1)
        [run] = await harness.runs()
        assert run.triggered_by == "scheduled"
        assert (await harness.schedules.show(added.id)).next_at == three + timedelta(days=1)
