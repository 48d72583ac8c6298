import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.primitives.processes import output, started
from tests.waiting import until_due
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument, LeaseLost, LeaseTaken
from tidegate.primitives.lease import Held, Lease, LeaseKeys
from tidegate.storage.valkey import Unit, Valkey

CONTENDERS = Path(__file__).with_name("contenders.py")
TEN = timedelta(seconds=10)
A_MS = timedelta(milliseconds=1)


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit("house")


@pytest.fixture
def ours(valkey: Valkey, unit: Unit, clock: ManualClock) -> Lease:
    return Lease(valkey, unit, "room", "we", clock)


@pytest.fixture
def theirs(valkey: Valkey, unit: Unit, clock: ManualClock) -> Lease:
    return Lease(valkey, unit, "room", "they", clock)


async def test_a_lease_has_one_holder(ours: Lease, theirs: Lease, clock: ManualClock):
    await ours.acquire(TEN)
    clock.advance(timedelta(seconds=4))
    with pytest.raises(LeaseTaken) as taken:
        await theirs.acquire(TEN)
    assert taken.value.remaining_ms == 6000


async def test_leases_of_different_names_have_nothing_to_do_with_each_other(
    ours: Lease, valkey: Valkey, unit: Unit, clock: ManualClock
):
    room = await ours.acquire(TEN)
    cellar = await Lease(valkey, unit, "cellar", "they", clock).acquire(TEN)
    assert cellar.fence > room.fence, "and yet a fence is never given twice"


async def test_a_lease_ends_at_its_time_and_not_before(ours: Lease, theirs: Lease, clock: ManualClock):
    held = await ours.acquire(TEN)
    clock.advance(TEN - A_MS)
    with pytest.raises(LeaseTaken):
        await theirs.acquire(TEN)
    clock.advance(A_MS)
    assert (await theirs.acquire(TEN)).fence > held.fence


async def test_a_renewed_lease_lasts_its_whole_time_again(ours: Lease, theirs: Lease, clock: ManualClock):
    held = await ours.acquire(TEN)
    clock.advance(TEN - A_MS)
    assert (await ours.renew(held)).fence == held.fence
    clock.advance(TEN - A_MS)
    with pytest.raises(LeaseTaken):
        await theirs.acquire(TEN)


async def test_a_lease_that_ended_cannot_be_renewed(ours: Lease, clock: ManualClock):
    """Even if nobody took it: its holder may have been told that it is free."""
    held = await ours.acquire(TEN)
    clock.advance(TEN)
    with pytest.raises(LeaseLost):
        await ours.renew(held)


async def test_what_passed_to_another_is_lost(ours: Lease, theirs: Lease, clock: ManualClock):
    old = await ours.acquire(TEN)
    clock.advance(TEN)
    new = await theirs.acquire(TEN)
    with pytest.raises(LeaseLost):
        await ours.renew(old)
    assert not await ours.release(old)
    assert (await theirs.renew(new)).fence == new.fence, "the late release did not touch it"


async def test_an_older_hold_of_our_own_is_worthless(ours: Lease, clock: ManualClock):
    old = await ours.acquire(TEN)
    clock.advance(TEN)
    new = await ours.acquire(TEN)
    with pytest.raises(LeaseLost):
        await ours.renew(old)
    assert not await ours.release(old)
    assert await ours.release(new)


async def test_a_released_lease_is_free_at_once(ours: Lease, theirs: Lease):
    held = await ours.acquire(TEN)
    assert await ours.release(held)
    assert not await ours.release(held), "there is nothing left to release"
    with pytest.raises(LeaseLost):
        await ours.renew(held)
    assert (await theirs.acquire(TEN)).fence > held.fence


async def test_the_holder_who_asks_again_holds_it_longer_under_the_same_fence(
    ours: Lease, theirs: Lease, clock: ManualClock
):
    """So a repeated request whose first answer was lost does no harm."""
    first = await ours.acquire(TEN)
    clock.advance(timedelta(seconds=9))
    assert (await ours.acquire(TEN)).fence == first.fence
    clock.advance(timedelta(seconds=9))
    with pytest.raises(LeaseTaken):
        await theirs.acquire(TEN)


async def test_the_fence_grows_even_when_the_server_has_lost_everything(
    ours: Lease, theirs: Lease, valkey: Valkey, unit: Unit, clock: ManualClock
):
    """Whoever kept the greatest fence it has seen, in SQL perhaps, must not refuse all holders to come."""
    before = await ours.acquire(TEN)
    keys = LeaseKeys(unit, "room")
    await valkey.execute("DEL", keys.lease, keys.fence)
    clock.advance(A_MS)
    assert (await theirs.acquire(TEN)).fence > before.fence


async def test_the_holder_knows_how_long_it_is_safe(ours: Lease):
    held = await ours.acquire(timedelta(hours=1))
    assert 3_540_000 < held.remaining_ms <= 3_600_000
    assert 3_540_000 < (await ours.renew(held)).remaining_ms <= 3_600_000
    assert Held(1, TEN, until_ms=0).remaining_ms == 0


async def test_what_is_left_of_a_lease_expires(ours: Lease, valkey: Valkey, unit: Unit):
    await ours.acquire(TEN)
    assert 10_000 < await valkey.execute("PTTL", LeaseKeys(unit, "room").lease) <= 3_610_000


async def test_on_the_servers_own_clock_a_lease_ends_too(valkey: Valkey, unit: Unit):
    held = await Lease(valkey, unit, "room", "we").acquire(timedelta(milliseconds=20))
    theirs = Lease(valkey, unit, "room", "they")
    while True:
        try:
            assert (await theirs.acquire(TEN)).fence > held.fence
        except LeaseTaken as taken:
            await until_due(taken.remaining_ms)
        else:
            return


async def test_nonsense_is_refused(ours: Lease, valkey: Valkey, unit: Unit):
    for ttl in (timedelta(0), timedelta(seconds=-1), timedelta(microseconds=10)):
        with pytest.raises(InvalidArgument, match="ttl"):
            await ours.acquire(ttl)
    with pytest.raises(InvalidArgument, match="owner"):
        Lease(valkey, unit, "room", "")
    with pytest.raises(InvalidArgument, match="lease"):
        Lease(valkey, unit, "", "we")
    with pytest.raises(InvalidArgument, match="held"):
        await ours.renew(Held(0, TEN, 0))


@pytest.mark.race
async def test_twenty_contenders_in_four_processes_never_hold_it_together(embedded: Valkey):
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(started(CONTENDERS, embedded.url, "8")) for _ in range(4)]
        printed = await asyncio.gather(*map(output, processes))
    fences = [int(line) for lines in printed for line in lines]
    assert len(set(fences)) == len(fences) == 4 * 5 * 8
    in_order = [int(fence) for fence in await embedded.execute("LRANGE", embedded.unit("house").key("fences"), 0, -1)]
    assert in_order == sorted(in_order)
