"""Back-pressure: events of prefetch do not wait much longer than half an hour."""

from datetime import timedelta

import pytest

from tests.systems.snapshots.prefetch.planner_world import NOON, Planning
from tidegate.systems.snapshots.prefetch.budget import WorkerBacklog
from tidegate.systems.snapshots.prefetch.planner import PrefetchPlanner
from tidegate.systems.snapshots.settings import PrefetchSettings

HALF_AN_HOUR_S = 1800


class Workers:
    """Do so many events per second, of a topic that is added to as fast as the planner may."""

    def __init__(self, per_second: float) -> None:
        self.per_second, self.waiting = per_second, 0.0

    async def lag(self) -> int:
        return int(self.waiting)

    async def run(self, backlog: WorkerBacklog, hours: float, offered: float = 250.0) -> list[float]:
        """How many waited, second by second."""
        waited: list[float] = []
        rests_until = now = NOON
        for _ in range(int(hours * 3600)):
            now += timedelta(seconds=1)
            self.waiting = max(0.0, self.waiting - self.per_second)
            if now >= rests_until:
                rest = await backlog.pause(now, offered)
                rests_until = now + rest
                if not rest:
                    self.waiting += offered
                    backlog.add(int(offered))
            waited.append(self.waiting)
        return waited


@pytest.mark.parametrize("per_second", [5.0, 60.0])
async def test_slow_workers_get_no_more_than_half_an_hour_of_work(per_second: float):
    workers = Workers(per_second)
    waited = await workers.run(WorkerBacklog(workers.lag), hours=2)

    # What was published before anybody knew how slow they are is worked off, and then it stays below the mark.
    assert max(waited[-600:]) <= 1.25 * per_second * HALF_AN_HOUR_S
    assert min(waited[-600:]) > 0.5 * per_second * HALF_AN_HOUR_S  # and they never run dry


async def test_fast_workers_never_wait():
    workers = Workers(300)
    backlog = WorkerBacklog(workers.lag)

    assert max(await workers.run(backlog, hours=0.2)) <= 250


async def test_without_workers_prefetch_stops_and_resumes_when_they_return():
    workers = Workers(0)
    backlog = WorkerBacklog(workers.lag)
    stuck = (await workers.run(backlog, hours=1))[-1]
    assert stuck <= 250 * 60
    assert (await workers.run(backlog, hours=1))[-1] == stuck

    workers.per_second = 250
    assert min(await workers.run(backlog, hours=0.3)) < stuck


async def test_the_planner_requests_nothing_while_the_backlog_is_too_long(planning: Planning):
    waiting = 10_000_000

    async def lag() -> int:
        return waiting

    planner = PrefetchPlanner(planning.database, planning.requests, PrefetchSettings(), WorkerBacklog(lag))
    await planning.check(["hero"])
    await planner.fire()
    planning.clock.advance(timedelta(days=3))

    wait_ms = await planner.fire()
    assert planning.requests.published == []
    assert wait_ms is not None
    assert 10_000 <= wait_ms <= 300_000
    assert await planning.spent(planning.clock.now().date()) == 0

    waiting = 0
    planning.clock.advance(timedelta(milliseconds=wait_ms))
    await planner.fire()
    assert [request.subject.key for request in planning.requests.published] == ["hero"]
