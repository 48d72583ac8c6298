import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.primitives.wakeup.waiters import until_blocked
from tests.waiting import patience
from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.metrics import SCHEDULER_LEADER_ACTIVE
from tidegate.primitives.membership import Election, Membership, MembershipKeys, MembershipSettings
from tidegate.runtime.leadership import Heartbeat, Leadership, leader_fence
from tidegate.runtime.service import Restarts, Service
from tidegate.runtime.waiting import end
from tidegate.storage.valkey import Valkey

BRIEF = MembershipSettings(lease=timedelta(milliseconds=500), renew_every=timedelta(milliseconds=100))
ENDLESS = MembershipSettings(lease=timedelta(hours=1))
"""A lease that does not end while a test runs: what happens then was not decided by a lease."""
AT_ONCE = Restarts(backoff=Backoff(first=timedelta(microseconds=1), most=timedelta(microseconds=1)))


class LeaderService:
    """Tells when it runs, and how it ended."""

    def __init__(self) -> None:
        self.running, self.ended = asyncio.Event(), asyncio.Event()
        self.starts, self.was_cancelled, self.fence = 0, False, 0

    async def run(self, stopping: asyncio.Event) -> None:
        self.starts, self.fence = self.starts + 1, leader_fence()
        self.running.set()
        try:
            await stopping.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        finally:
            self.running.clear()
            self.ended.set()


class Process:
    """What one process has of all this; several of them share the test's."""

    def __init__(self, valkey: Valkey, owner: str, settings: MembershipSettings | None = None, **more: Service) -> None:
        unit = valkey.unit("all")
        self.heartbeat = Heartbeat(Membership(valkey, unit, owner, settings=settings))
        self.election, self.service = Election(valkey, unit, owner), LeaderService()
        self.leadership = Leadership(self.election, self.heartbeat, {"service": self.service, **more}, restarts=AT_ONCE)
        self.stopping = asyncio.Event()
        self._heart_stopping = asyncio.Event()
        self._beating = asyncio.create_task(self.heartbeat.run(self._heart_stopping))
        self.leading = asyncio.create_task(self.leadership.run(self.stopping))

    async def stop(self) -> None:
        self.stopping.set()
        await asyncio.wait([self.leading])
        self._heart_stopping.set()
        await self._beating

    async def die(self) -> None:
        """As if killed: neither resign nor leave."""
        await end(self.leading, self._beating)


@asynccontextmanager
async def process(
    valkey: Valkey, owner: str, settings: MembershipSettings | None = None, **more: Service
) -> AsyncGenerator[Process]:
    made = Process(valkey, owner, settings, **more)
    try:
        yield made
    finally:
        async with patience():
            await made.stop()


async def soon(event: asyncio.Event) -> None:
    async with patience():
        await event.wait()


def gauge() -> float:
    return SCHEDULER_LEADER_ACTIVE.collect()[0].samples[0].value  # pyright: ignore[reportIndexIssue]


async def test_a_single_process_leads_runs_its_services_and_drains_them_at_the_stop(valkey: Valkey):
    async with process(valkey, "one") as one:
        await soon(one.service.running)
        assert one.leadership.fence is not None
        assert (one.service.fence, leader_fence()) == (one.leadership.fence, 0)
        assert gauge() == 1
        await one.stop()
        assert one.service.ended.is_set()
        assert not one.service.was_cancelled
        assert one.leadership.fence is None
        assert gauge() == 0


async def test_one_of_several_processes_runs_the_leader_services(valkey: Valkey):
    async with process(valkey, "one") as one:
        await soon(one.service.running)
        async with process(valkey, "two") as two, process(valkey, "three") as three:
            await until_blocked(valkey, MembershipKeys(valkey.unit("all")).vacancy, 2)
            assert one.service.starts == 1
            assert two.service.starts == three.service.starts == 0


async def test_when_the_leader_resigns_a_follower_takes_over_immediately_with_a_greater_fencing_token(valkey: Valkey):
    async with process(valkey, "one", ENDLESS) as one:
        await soon(one.service.running)
        first = one.leadership.fence
        async with process(valkey, "two", ENDLESS) as two:
            await until_blocked(valkey, MembershipKeys(valkey.unit("all")).vacancy)
            await one.stop()
            await soon(two.service.running)
            assert first is not None
            assert two.leadership.fence is not None
            assert two.leadership.fence > first


async def test_when_the_leader_dies_a_follower_takes_over_after_its_lease(valkey: Valkey):
    one = Process(valkey, "one", BRIEF)
    await soon(one.service.running)
    async with process(valkey, "two", BRIEF) as two:
        await until_blocked(valkey, MembershipKeys(valkey.unit("all")).vacancy)
        await one.die()
        await soon(two.service.running)


async def test_a_leader_whose_lease_ends_stops_its_services_immediately_and_becomes_a_candidate(valkey: Valkey):
    class Sluggish(LeaderService):
        async def run(self, stopping: asyncio.Event) -> None:
            self.starts += 1
            self.running.set()
            await stopping.wait()
            try:
                await asyncio.Event().wait()  # would drain for ever
            finally:
                self.running.clear()
                self.ended.set()

    sluggish = Sluggish()
    async with process(valkey, "one", sluggish=sluggish) as one:
        for start in (1, 2):
            await soon(sluggish.running)
            assert sluggish.starts == start
            sluggish.ended.clear()
            await valkey.execute("FLUSHALL")
            one.heartbeat.assume_lost()
            await soon(sluggish.ended)
        await end(one.leading)  # or the stop would wait for the sluggish one


async def test_a_leader_service_sees_the_loss_at_the_time_it_happens(valkey: Valkey):
    class Watching(LeaderService):
        told: asyncio.Event | None = None

        async def run(self, stopping: asyncio.Event) -> None:
            self.told = stopping
            await super().run(stopping)

    watching = Watching()
    async with process(valkey, "one", watching=watching) as one:
        await soon(watching.running)
        assert watching.told is not None
        one.heartbeat.assume_lost()
        assert watching.told.is_set(), "before any other task had its turn"


async def test_a_process_that_the_server_lost_joins_again_and_leads(valkey: Valkey):
    async with process(valkey, "one") as one:
        await soon(one.service.running)
        async with process(valkey, "two") as two:
            vacancy = MembershipKeys(valkey.unit("all")).vacancy
            await until_blocked(valkey, vacancy)
            await valkey.execute("FLUSHALL")
            await valkey.execute("RPUSH", vacancy, "1")  # the follower stands, and hears that it is not there
            await soon(two.service.running)


async def test_a_failed_leader_service_is_restarted_and_the_others_continue(valkey: Valkey):
    class Falling(LeaderService):
        async def run(self, stopping: asyncio.Event) -> None:
            if self.starts < 3:
                self.starts += 1
                raise ZeroDivisionError
            await super().run(stopping)

    falling = Falling()
    async with process(valkey, "one", falling=falling) as one:
        await soon(falling.running)
        assert falling.starts == 4
        assert one.service.starts == 1


async def test_a_stopping_follower_does_not_wait(valkey: Valkey):
    async with process(valkey, "one") as one:
        await soon(one.service.running)
        two = Process(valkey, "two")
        await until_blocked(valkey, MembershipKeys(valkey.unit("all")).vacancy)
        async with patience():
            await two.stop()
        assert two.service.starts == 0


async def test_a_process_stopped_before_it_joined_ends(valkey: Valkey):
    unit = valkey.unit("all")
    never = Heartbeat(Membership(valkey, unit, "one"))
    stopping = asyncio.Event()
    running = asyncio.create_task(
        Leadership(Election(valkey, unit, "one"), never, {"service": LeaderService()}).run(stopping)
    )
    stopping.set()
    async with patience():
        await running


async def test_a_leader_without_services_is_refused(valkey: Valkey):
    unit = valkey.unit("all")
    with pytest.raises(InvalidArgument, match="services"):
        Leadership(Election(valkey, unit, "one"), Heartbeat(Membership(valkey, unit, "one")), {})


async def test_a_follower_leads_immediately_when_the_server_lost_the_leader_too(valkey: Valkey):
    """The old leader may be dead, and its lease would have lasted long."""
    patient = MembershipSettings(lease=timedelta(seconds=60), renew_every=timedelta(seconds=50))
    first = Process(valkey, "first", patient)
    await soon(first.service.running)
    async with process(valkey, "second", patient) as second:
        await until_blocked(valkey, MembershipKeys(valkey.unit("all")).vacancy)
        await first.die()
        await valkey.execute("FLUSHALL")
        second.heartbeat.renew_now()
        await soon(second.service.running)
