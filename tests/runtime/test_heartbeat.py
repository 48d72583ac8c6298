import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tests.virtual_time import run_virtually
from tests.waiting import blocked_process, patience, simulated_delay, until
from tidegate.core.clock import ManualClock
from tidegate.core.errors import ValkeyUnavailable
from tidegate.primitives.membership import Membership, MembershipSettings
from tidegate.runtime.leadership import Heartbeat
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.waiting import end
from tidegate.storage.valkey import Valkey

BRIEF = MembershipSettings(lease=timedelta(milliseconds=400), renew_every=timedelta(milliseconds=100))
OFTEN = MembershipSettings(lease=timedelta(seconds=60), renew_every=timedelta(milliseconds=100))
LONG = MembershipSettings(lease=timedelta(seconds=60), renew_every=timedelta(seconds=50))


def membership_of(valkey: Valkey, owner: str = "me", settings: MembershipSettings = BRIEF) -> Membership:
    return Membership(valkey, valkey.unit("all"), owner, settings=settings)


@asynccontextmanager
async def beating(heartbeat: Heartbeat) -> AsyncGenerator[asyncio.Event]:
    stopping = asyncio.Event()
    running = asyncio.create_task(heartbeat.run(stopping))
    try:
        yield stopping
    finally:
        stopping.set()
        async with patience():
            await running


async def members(valkey: Valkey) -> list[str]:
    return [member.owner for member in await membership_of(valkey).members()]


async def test_a_process_joins_renews_its_lease_and_leaves(valkey: Valkey, clock: ManualClock):
    """The server's clock moves only after a renewal, so a slow machine does not end the lease."""
    membership = Membership(valkey, valkey.unit("all"), "me", clock=clock, settings=OFTEN)
    heartbeat = Heartbeat(membership)

    async def is_renewed() -> bool:
        [member] = await membership.members()
        return member.remaining_ms == 60_000

    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            for _ in range(3):
                clock.advance(timedelta(seconds=40))
                await until(is_renewed)
        assert not lost.is_set()
        assert heartbeat.alive.is_set()
        assert not heartbeat.has_left
    assert not heartbeat.alive.is_set()
    assert heartbeat.has_left
    assert await members(valkey) == []


async def test_between_two_heartbeats_no_command_is_sent(valkey: Valkey):
    heartbeat = Heartbeat(membership_of(valkey, settings=LONG))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        before = await _commands(valkey)
        for _ in range(100):
            await asyncio.sleep(0)
        assert await _commands(valkey) - before == 1, "only our own INFO"


async def _commands(valkey: Valkey) -> int:
    return int((await valkey.execute("INFO", "stats"))["total_commands_processed"])


async def test_a_process_declared_dead_learns_it_and_joins_again(valkey: Valkey):
    heartbeat = Heartbeat(membership_of(valkey, settings=OFTEN))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            await valkey.execute("FLUSHALL")
            async with patience():
                await lost.wait()
                await heartbeat.alive.wait()
        assert await members(valkey) == ["me"]


async def test_an_expired_and_renewed_lease_counts_as_lost(valkey: Valkey, clock: ManualClock):
    """A suspended machine's own clock stood still, but nobody else's did; others may have acted as if we were dead."""
    heartbeat = Heartbeat(Membership(valkey, valkey.unit("all"), "me", clock=clock, settings=BRIEF))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            clock.advance(timedelta(minutes=1))
            async with patience():
                await lost.wait()
                await heartbeat.alive.wait()


async def test_after_a_suspension_all_parts_learn_of_the_lost_lease_before_acting(valkey: Valkey):
    heartbeat = Heartbeat(membership_of(valkey))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:

            async def act_soon() -> bool:
                await simulated_delay(0.01)
                return lost.is_set()

            acting = [asyncio.create_task(act_soon()) for _ in range(5)]
            await asyncio.sleep(0)
            blocked_process(0.5)  # longer than the lease
            assert await asyncio.gather(*acting) == [True] * 5


async def test_a_report_of_a_lost_lease_makes_it_join_again_immediately(valkey: Valkey):
    heartbeat = Heartbeat(membership_of(valkey, settings=LONG))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            await valkey.execute("FLUSHALL")
            heartbeat.assume_lost()
            assert lost.is_set()
            assert not heartbeat.alive.is_set()
            async with patience():
                await heartbeat.alive.wait()
        assert await members(valkey) == ["me"]


async def test_a_suspicion_makes_it_check_its_lease_immediately(valkey: Valkey):
    heartbeat = Heartbeat(membership_of(valkey, settings=LONG))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            heartbeat.renew_now()  # for nothing
            while (await membership_of(valkey).members())[0].remaining_ms <= 59_000:
                pass
            assert not lost.is_set()

            await valkey.execute("FLUSHALL")
            heartbeat.renew_now()
            async with patience():
                await lost.wait()
                await heartbeat.alive.wait()
        assert await members(valkey) == ["me"]


async def test_an_unsubscribed_listener_is_not_called(valkey: Valkey):
    heartbeat = Heartbeat(membership_of(valkey, settings=LONG))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            pass
        heartbeat.assume_lost()
        assert not lost.is_set()


@pytest.fixture
async def wire() -> AsyncGenerator[Proxy]:
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with Proxy(port) as proxy:
            yield proxy


async def test_a_short_outage_does_not_end_the_lease(wire: Proxy):
    valkey = await Valkey.connect(f"redis://127.0.0.1:{wire.port}")
    heartbeat = Heartbeat(membership_of(valkey, settings=OFTEN))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            wire.cut()
            remaining_ms = (await membership_of(valkey).members())[0].remaining_ms
            while (await membership_of(valkey).members())[0].remaining_ms <= remaining_ms:
                pass  # until it was renewed over a new connection
            assert not lost.is_set()
    await valkey.close()


async def test_a_long_outage_ends_the_lease_and_it_joins_again_afterwards(wire: Proxy):
    valkey = await Valkey.connect(f"redis://127.0.0.1:{wire.port}")
    heartbeat = Heartbeat(membership_of(valkey))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        with heartbeat.watch() as lost:
            await wire.refuse()
            async with patience():
                await lost.wait()
            await until(lambda: not heartbeat.alive.is_set())

            await wire.listen()
            async with patience():
                await heartbeat.alive.wait()
    await valkey.close()


def test_a_lease_that_cannot_be_renewed_is_lost_at_its_end_and_not_later():
    """On a virtual clock; the server is away from the first renewal on."""

    class Away(Membership):
        def __init__(self) -> None:
            self.owner, self.settings = "me", MembershipSettings(lease=timedelta(seconds=10))

        @property
        def remaining_ms(self) -> float:
            return 10_000

        async def join(self) -> None:
            pass

        async def renew(self) -> bool:
            raise ValkeyUnavailable("away")

    async def scenario(now_s: Callable[[], float]) -> float:
        heartbeat = Heartbeat(Away())
        running = asyncio.create_task(heartbeat.run(asyncio.Event()))
        with heartbeat.watch() as lost:
            await lost.wait()
        await end(running)
        return now_s()

    assert run_virtually(scenario) == 10


async def test_a_stop_does_not_wait_for_an_unavailable_server(wire: Proxy):
    valkey = await Valkey.connect(f"redis://127.0.0.1:{wire.port}")
    heartbeat = Heartbeat(membership_of(valkey))
    async with beating(heartbeat):
        await heartbeat.alive.wait()
        await wire.refuse()
    assert not heartbeat.has_left
    await valkey.close()


class Hanging:
    """Does not stop when told to."""

    async def run(self, stopping: asyncio.Event) -> None:
        await asyncio.Event().wait()


async def test_a_process_whose_service_is_cancelled_at_the_end_does_not_leave(valkey: Valkey):
    """The service may still hold messages: others look for them only where the process counts as dead."""
    supervisor = Supervisor(drain_within=timedelta(milliseconds=500))
    heartbeat = Heartbeat(membership_of(valkey, settings=LONG), may_leave=lambda: not supervisor.is_cut_off)
    supervisor.add("heartbeat", heartbeat)
    supervisor.add("hanging", Hanging())
    running = asyncio.create_task(supervisor.run())
    async with patience():
        await heartbeat.alive.wait()
        supervisor.stop()
        assert "hanging" in (await running).cancelled

    assert not heartbeat.has_left
    assert await members(valkey) == ["me"]


async def test_a_connection_that_loses_packets_does_not_delay_the_next_renewal(wire: Proxy, clock: ManualClock):
    """Such a connection stays silent for seconds after the network is back, and others see by then that writes are
    accepted: a process that waited for it would be declared dead."""
    valkey = await Valkey.connect(f"redis://127.0.0.1:{wire.port}")
    settings = MembershipSettings(lease=timedelta(seconds=60), renew_every=timedelta(seconds=59))
    membership = Membership(valkey, valkey.unit("all"), "me", clock=clock, settings=settings)
    heartbeat = Heartbeat(membership)

    async def is_renewed() -> bool:
        return [member.remaining_ms for member in await membership.members()] == [60_000]

    async with beating(heartbeat):
        await heartbeat.alive.wait()
        clock.advance(timedelta(seconds=50))
        wire.drop()
        heartbeat.renew_now()
        await until(lambda: len(wire.silenced) >= 2)  # it is sent again while the first attempt goes on
        wire.restore()
        await until(is_renewed)
    await valkey.close()
