import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.primitives.membership.candidates import SHORT_LEASE_MS
from tests.primitives.processes import kill, output, said, started
from tests.primitives.wakeup.waiters import until_blocked
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument, LeaseLost
from tidegate.primitives.membership import Elected, Election, Following, Membership, MembershipKeys
from tidegate.storage.valkey import Unit, Valkey

CANDIDATES = Path(__file__).with_name("candidates.py")
LEASE = timedelta(seconds=10)
A_MS = timedelta(milliseconds=1)


class Process:
    def __init__(self, valkey: Valkey, unit: Unit, owner: str, clock: ManualClock) -> None:
        self.membership, self.election = Membership(valkey, unit, owner, clock), Election(valkey, unit, owner, clock)


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit("house")


@pytest.fixture
async def us(valkey: Valkey, unit: Unit, clock: ManualClock) -> Process:
    process = Process(valkey, unit, "us", clock)
    await process.membership.join()
    return process


@pytest.fixture
async def them(valkey: Valkey, unit: Unit, clock: ManualClock) -> Process:
    process = Process(valkey, unit, "them", clock)
    await process.membership.join()
    return process


async def lead(process: Process) -> int:
    elected = await process.election.stand()
    assert isinstance(elected, Elected)
    return elected.fence


async def test_the_first_candidate_leads_and_the_others_follow(us: Process, them: Process, clock: ManualClock):
    fence = await lead(us)
    clock.advance(timedelta(seconds=3))
    assert await them.election.stand() == Following(remaining_ms=7_000)
    assert await us.election.stand() == Elected(fence), "it still leads, under the same fence"


async def test_one_heartbeat_renews_lease_and_leadership(us: Process, them: Process, clock: ManualClock):
    fence = await lead(us)
    for _ in range(5):
        clock.advance(LEASE - A_MS)
        await us.membership.renew()
        await them.membership.renew()
        assert await them.election.stand() == Following(remaining_ms=10_000)
    assert await us.election.stand() == Elected(fence)


async def test_a_follower_leads_as_soon_as_the_leader_is_dead(us: Process, them: Process, clock: ManualClock):
    old = await lead(us)
    clock.advance(timedelta(seconds=5))
    await them.membership.renew()
    clock.advance(timedelta(seconds=5) - A_MS)
    assert await them.election.stand() == Following(remaining_ms=1)
    clock.advance(A_MS)
    assert await lead(them) > old


async def test_a_frozen_leader_that_resumes_learns_that_it_was_replaced(us: Process, them: Process, clock: ManualClock):
    await lead(us)
    clock.advance(LEASE)
    await them.membership.renew()
    await lead(them)
    assert await us.membership.renew() is False, "its life was broken, so it has to look"
    assert isinstance(await us.election.stand(), Following)
    assert not await us.election.resign()
    assert isinstance(await them.election.stand(), Elected)


async def test_a_frozen_leader_that_was_not_replaced_continues_to_lead(us: Process, clock: ManualClock):
    fence = await lead(us)
    clock.advance(2 * LEASE)
    assert await us.membership.renew() is False
    assert await us.election.stand() == Elected(fence)


async def test_a_dead_process_cannot_be_a_candidate(us: Process, clock: ManualClock, valkey: Valkey, unit: Unit):
    clock.advance(LEASE)
    with pytest.raises(LeaseLost):
        await us.election.stand()
    with pytest.raises(LeaseLost):
        await Election(valkey, unit, "nobody", clock).stand()


async def test_a_leader_that_left_no_longer_leads(us: Process, them: Process):
    old = await lead(us)
    await us.membership.leave()
    assert await lead(them) > old


async def test_a_resignation_wakes_one_waiting_candidate(us: Process, them: Process, valkey: Valkey, unit: Unit):
    old = await lead(us)
    waiting = asyncio.create_task(them.election.wait_for_vacancy(30))
    await until_blocked(valkey, MembershipKeys(unit).vacancy)
    assert await us.election.resign()
    assert await waiting, "woken, not ended by its limit"
    assert await lead(them) > old


async def test_a_resignation_without_waiting_candidates_wakes_no_later_one(us: Process, them: Process):
    await lead(us)
    await us.election.resign()
    await lead(them)
    assert not await us.election.wait_for_vacancy(0.001)


async def test_only_the_leader_can_resign(us: Process, them: Process):
    assert not await us.election.resign()
    await lead(us)
    assert not await them.election.resign()
    assert await us.election.resign()
    assert not await us.election.resign()
    assert not await us.election.wait_for_vacancy(0.001) or await lead(us)


async def test_the_fencing_token_increases_although_the_server_lost_its_data(
    us: Process, valkey: Valkey, unit: Unit, clock: ManualClock
):
    old = await lead(us)
    keys = MembershipKeys(unit)
    await valkey.execute("DEL", keys.membership, keys.leader, keys.fence)
    clock.advance(A_MS)
    await us.membership.join()
    assert await lead(us) > old


async def test_invalid_arguments_are_refused(us: Process, valkey: Valkey, unit: Unit):
    with pytest.raises(InvalidArgument, match="owner"):
        Election(valkey, unit, "")
    with pytest.raises(InvalidArgument, match="within_s"):
        await us.election.wait_for_vacancy(0)


@pytest.mark.race
async def test_of_twenty_candidates_in_four_processes_one_leads_at_a_time(valkey: Valkey, unit: Unit):
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(started(CANDIDATES, valkey.url, "race", "40")) for _ in range(4)]
        await asyncio.gather(*map(output, processes))
    fences = [int(fence) for fence in await valkey.execute("LRANGE", unit.key("terms"), 0, -1)]
    assert len(fences) >= 40
    assert all(earlier < later for earlier, later in pairwise(fences))


@pytest.mark.smoke
@pytest.mark.crash
async def test_a_killed_leader_is_replaced_when_its_lease_ends(valkey: Valkey, unit: Unit):
    membership, election = Membership(valkey, unit, "us"), Election(valkey, unit, "us")
    async with started(CANDIDATES, valkey.url, "lead") as leader:
        old = int(await said(leader))
        await membership.join()
        await kill(leader)
    while isinstance(outcome := await election.stand(), Following):
        assert outcome.remaining_ms <= SHORT_LEASE_MS
        assert not await election.wait_for_vacancy(outcome.remaining_ms / 1000)
        await membership.renew()
    assert outcome.fence > old


async def test_a_leader_declared_dead_is_replaced_immediately_with_a_greater_fencing_token(
    us: Process, them: Process, valkey: Valkey, unit: Unit
):
    fence = await lead(us)
    waiting = asyncio.create_task(them.election.wait_for_vacancy(60))
    await until_blocked(valkey, MembershipKeys(unit).vacancy)

    assert await them.membership.declare_dead("us")

    assert await waiting, "a follower is woken"
    assert await lead(them) > fence
    with pytest.raises(LeaseLost):
        await us.election.stand()
    with pytest.raises(LeaseLost):
        await us.membership.renew()


async def test_declaring_a_follower_dead_does_not_affect_the_leader(us: Process, them: Process):
    fence = await lead(us)

    assert await us.membership.declare_dead("them")

    assert await us.election.stand() == Elected(fence)
    assert not await us.election.wait_for_vacancy(0.001)
