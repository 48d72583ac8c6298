"""Histories are fed by moves, and stay quiet where everything is."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.engine.api.test_run_feed import until
from tests.engine.api.test_runs import TIGHT, begin
from tests.http.serving import Served, served
from tests.waiting import look_again, until_still
from tidegate.core.errors import DatabaseUnavailable
from tidegate.dashboard import sampler as sampler_module
from tidegate.dashboard.history import History
from tidegate.dashboard.sampler import Sampler
from tidegate.engine.reports.gauges import RunFigures
from tidegate.engine.reports.overview import EndedJobs
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.outbox import OutboxDepth

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = timedelta(milliseconds=20)


def values(history: History, name: str) -> list[tuple[float, float]]:
    [series] = history.series([name])
    return series.points


async def test_a_run_adds_points_to_the_history_which_then_stays_constant(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT, users=1) as poor:
        collection, history = poor.collection, History()
        sampler = Sampler(collection, [], history, gap=AT_ONCE)
        stopping = asyncio.Event()
        looks = Counting(history)
        working = asyncio.create_task(sampler.run(stopping))
        await until(lambda: looks.count >= 2)  # the first look, and one more after it
        await until_still(lambda: looks.count)  # no clock ticks while nothing moves

        run_id = await begin(poor.client, poor.logins[0])
        await until(lambda: history.names.count("quota/GITHUB_TOKEN/core") == 1)
        await until(lambda: values(history, "runs/active")[-1][1] == 1)
        await until(lambda: values(history, "jobs/waiting")[-1][1] > 0)
        await until(lambda: any(value > 0 for _, value in values(history, "jobs/done")))
        await poor.client.post(f"/v1/runs/{run_id}/cancel")
        await until(lambda: values(history, "jobs/pending")[-1][1] == 0)
        await until(lambda: values(history, "jobs/done")[-1][1] == 0)

        assert {"jobs/failed", "outbox/pending", "stream/jobs/depth", "stream/jobs/lag", "timers/alarms"} <= {
            *history.names
        }
        stopping.set()
        await working


class Counting:
    """Counts what is recorded in a history."""

    def __init__(self, history: History) -> None:
        self.count, record = 0, history.record

        def counted(at_s: float, figures: Any) -> None:
            self.count += 1
            record(at_s, figures)

        history.record = counted


async def test_a_rate_is_not_overstated_after_failed_samples(deployment: Served, monkeypatch: pytest.MonkeyPatch):
    """A hundred jobs end in every second, also while nobody here can see it."""
    collection, history = deployment.collection, History()
    created_at, is_away = datetime.now(UTC), False

    def read(tx: Transaction, moved: Sequence[int]) -> Any:
        if is_away:
            raise DatabaseUnavailable("it is away")
        done = round((tx.now - created_at).total_seconds() * 100)
        ended = {run: EndedJobs(created_at=created_at, succeeded=done, failed=0) for run in moved if run == 4711}
        return RunFigures(active=1, pending=1, failed=0, ended=0), OutboxDepth(0, 0, None), ended, tx.now

    monkeypatch.setattr(sampler_module, "_read", read)
    sampler, stopping = Sampler(collection, [], history, gap=timedelta(milliseconds=100)), asyncio.Event()
    working = asyncio.create_task(sampler.run(stopping))

    async def seen(looks: int) -> list[float | None]:
        """The rates of so many samples."""
        before = counting.count
        while counting.count < before + looks:
            await collection.change_feed.tell([4711])
            await look_again()
        return counting.paces[before:]

    counting = Paces(history)
    await seen(4)
    is_away = True
    await seen(8)
    is_away = False
    paces = [pace for pace in await seen(6) if pace is not None]
    stopping.set()
    await working

    assert paces, "it is back"
    assert 10 < max(paces) < 400, "it was about 1000 where what ended in all that time counted for the last look"


class Paces:
    """Notes the pace of jobs that is recorded in a history."""

    def __init__(self, history: History) -> None:
        self.paces, record = list[float | None](), history.record

        def noted(at_s: float, figures: Any) -> None:
            self.paces.append(figures["jobs/done"].value if "jobs/done" in figures else None)
            record(at_s, figures)

        history.record = noted

    @property
    def count(self) -> int:
        return len(self.paces)


async def test_concurrent_viewers_cause_one_sample_per_interval(deployment: Served):
    history = History()
    sampler = Sampler(deployment.collection, [], history, gap=timedelta(minutes=1))
    looks = Counting(history)

    await asyncio.gather(*(sampler.sample() for _ in range(20)))
    await sampler.sample()

    assert looks.count == 1


async def test_history_is_read_by_name_and_without_a_name_the_series_are_listed(deployment: Served):
    client = deployment.client

    names = (await client.get("/v1/history")).json
    some = (await client.get("/v1/history?series=jobs/&series=runs/active&series=weather")).json

    assert names["series"] == []
    assert {"jobs/done", "jobs/pending", "runs/active", "timers/gate"} <= set(names["names"])
    assert [each["name"] for each in some["series"]] == [
        name for name in names["names"] if name.startswith("jobs/") or name == "runs/active"
    ]
    assert {each["name"]: each["unit"] for each in some["series"]}["jobs/done"] == "jobs/s"
    [[moment, _], *_] = some["series"][0]["points"]
    assert abs(moment - datetime.now(UTC).timestamp()) < 600
    too_many = "&".join(f"series=s{n}" for n in range(51))
    assert (await client.get(f"/v1/history?{too_many}")).problem == "invalid"
