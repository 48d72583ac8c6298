"""The figures of the whole deployment: right on every database, looked at once for all who ask, and each alone."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from tests.servers.migrated import migrated_file
from tests.waiting import patience, simulated_delay
from tidegate.core.telemetry import metrics
from tidegate.engine.lifecycle import RunState
from tidegate.engine.metrics import COLLECTION_RUNS_ACTIVE
from tidegate.engine.reports.gauges import EngineGauges, RunFigures, count_runs
from tidegate.engine.tables import collection_runs
from tidegate.primitives.gate import Gate
from tidegate.primitives.stream import Stream, StreamStatus
from tidegate.primitives.timers import Timers
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.valkey import Valkey


def row(n: int, status: RunState, now: datetime, *, ago: timedelta | None = None, **jobs: int) -> dict[str, Any]:
    return {
        "source": "shelves",
        "user_id": f"user{n}",
        "login": f"user{n}",
        "pool": "everybody",
        "options": {},
        "status": status,
        "triggered_by": "manual",
        "active_key": None,
        "created_at": now,
        "completed_at": None if ago is None else now - ago,
        "total_jobs": 0,
        "succeeded_jobs": 0,
        "failed_jobs": 0,
        "canceled_jobs": 0,
    } | jobs


def add_runs(tx: Transaction, more: int = 0) -> None:
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    rows = [
        row(1, RunState.RUNNING, tx.now, total_jobs=10, succeeded_jobs=3, failed_jobs=1),
        row(2, RunState.PLANNING, tx.now, total_jobs=3),
        row(3, RunState.FINALIZING, tx.now, total_jobs=4, succeeded_jobs=2, failed_jobs=1, canceled_jobs=1),
        row(4, RunState.COMPLETED, tx.now, ago=minute, total_jobs=3, succeeded_jobs=2, failed_jobs=1),
        row(5, RunState.COMPLETED, tx.now, ago=hour, total_jobs=90, failed_jobs=90),
        row(6, RunState.CANCELED, tx.now, ago=minute, total_jobs=7, canceled_jobs=7),
        *(row(n, RunState.COMPLETED, tx.now, ago=hour) for n in range(10, 10 + more)),
    ]
    tx.execute(insert(collection_runs), rows)


@pytest.mark.every_server
async def test_runs_are_counted_and_jobs_of_active_runs(database: Database):
    assert await database.read(count_runs) == RunFigures(active=0, pending=0, failed=0, ended=0)
    await database.transaction(add_runs)

    figures = await database.read(count_runs)

    assert figures == RunFigures(active=3, pending=6 + 3, failed=1 + 1 + 1, ended=4 + 3 + 3)
    assert figures.failed_rate == 0.3
    assert RunFigures(active=0, pending=0, failed=0, ended=0).failed_rate == 0


async def test_active_runs_are_counted_regardless_of_age(database: Database):
    await database.transaction(add_runs, 1_200)

    assert (await database.read(count_runs)).active == 3


class Watched(Stream):
    """A stream that counts how often somebody looks, and can be slow or broken."""

    looks, pause_s, fails = 0, 0.0, False

    async def status(self) -> StreamStatus:
        self.looks += 1
        await simulated_delay(self.pause_s)
        if self.fails:
            raise RuntimeError("broken")
        return await super().status()


@pytest.fixture
def stream(embedded: Valkey) -> Watched:
    return Watched(embedded, embedded.unit("gauges"), "jobs")


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncGenerator[Database]:
    async with await Database.open(await migrated_file(tmp_path / "gauges.db")) as opened:
        yield opened


_UNIT = "gauges"


@pytest.fixture
def make(embedded: Valkey, sqlite: Database, stream: Watched) -> Callable[[timedelta], EngineGauges]:
    unit = embedded.unit(_UNIT)
    alarms = Stream(embedded, unit, "alarms")
    timers = Timers(embedded, unit, alarms.keys.stream)
    gate = Gate(embedded, unit, stream=stream.keys.stream, group="workers", wake=timers.keys.wake)
    return lambda fresh_for: EngineGauges(sqlite, [gate], [timers], [stream, alarms], fresh_for=fresh_for)


def values(gauge: metrics.Gauge) -> list[float]:
    """What it shows for each of its labels, those of streams and gates from other tests left out; at least one."""
    samples = [sample for family in gauge.collect() for sample in family.samples]
    ours = [sample for sample in samples if sample.labels.get("stream", "jobs") in {"jobs", "alarms"}]
    found = [sample.value for sample in ours if sample.labels.get("gate", _UNIT) == _UNIT]
    assert found
    return found


async def test_concurrent_scrapes_share_one_read(make: Callable[[timedelta], EngineGauges], stream: Watched):
    gauges = make(timedelta(minutes=1))
    await asyncio.gather(*(gauges.refresh() for _ in range(20)))
    await gauges.refresh()

    assert stream.looks == 1


async def test_a_failing_gauge_source_does_not_affect_other_sources(
    make: Callable[[timedelta], EngineGauges], stream: Watched
):
    gauges = make(timedelta(0))
    await gauges.refresh()
    assert not any(map(math.isnan, values(metrics.STREAM_PENDING_COUNT)))

    stream.fails = True
    await gauges.refresh()

    assert all(map(math.isnan, values(metrics.STREAM_PENDING_COUNT)))
    assert values(metrics.METRICS_SOURCE_UP.labels("streams")) == [0]
    assert values(metrics.METRICS_SOURCE_UP.labels("gate")) == [1]
    assert values(COLLECTION_RUNS_ACTIVE) == [0]
    assert not any(map(math.isnan, values(metrics.GATE_WAITING)))

    stream.fails = False
    await gauges.refresh()
    assert not any(map(math.isnan, values(metrics.STREAM_PENDING_COUNT))), "and it is told again"


async def test_waiting_and_dead_events_are_counted(make: Callable[[timedelta], EngineGauges], sqlite: Database):
    def fill(tx: Transaction) -> None:
        outbox.add(tx, *(Event("kind", "key", n) for n in range(3)))
        outbox.mark_dead(tx, outbox.pending_page(tx)[0].id, attempts=5, error="broken")

    await sqlite.transaction(fill)
    await make(timedelta(0)).refresh()

    assert (values(metrics.OUTBOX_PENDING), values(metrics.OUTBOX_DEAD)) == ([2], [1])
    (waits_s,) = values(metrics.OUTBOX_OLDEST)
    assert 0 <= waits_s < 60


async def test_a_read_of_gauges_has_a_deadline(make: Callable[[timedelta], EngineGauges], stream: Watched):
    gauges, stream.pause_s = make(timedelta(0)), 60

    async with patience():
        await gauges.refresh()

    assert values(COLLECTION_RUNS_ACTIVE) == [0]
