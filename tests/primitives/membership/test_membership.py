import asyncio
import gc
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from tests.waiting import patience, until_due
from tidegate.core.clock import ManualClock, monotonic_ms
from tidegate.core.errors import InvalidArgument, LeaseLost, ValkeyUnavailable
from tidegate.primitives import membership
from tidegate.primitives.membership import Expiry, Member, Membership, MembershipKeys, MembershipSettings
from tidegate.storage.valkey import Unit, Valkey

A_MS = timedelta(milliseconds=1)
LEASE = timedelta(seconds=10)
PROOF = MembershipSettings().proof


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit("house")


@pytest.fixture
def us(valkey: Valkey, unit: Unit, clock: ManualClock) -> Membership:
    return Membership(valkey, unit, "us", clock)


@pytest.fixture
def them(valkey: Valkey, unit: Unit, clock: ManualClock) -> Membership:
    return Membership(valkey, unit, "them", clock)


async def watched(membership: Membership, clock: ManualClock, span: timedelta) -> list[str]:
    """Time passes, and `membership` looks whenever it was told to; whom it declared dead."""
    declared, expiry = list[str](), await membership.expire()
    while True:
        declared += expiry.owners
        if span <= timedelta(0):
            return declared
        step = span if expiry.next_in_ms is None else min(span, max(A_MS, expiry.next_in_ms * A_MS))
        clock.advance(step)
        span -= step
        expiry = await membership.expire()


async def test_a_process_is_alive_for_ten_seconds_after_each_heartbeat(
    us: Membership, them: Membership, clock: ManualClock
):
    await us.join()
    await them.join()
    assert await watched(us, clock, LEASE - A_MS) == []
    assert await them.renew()
    assert await watched(us, clock, LEASE - A_MS) == []
    assert await watched(us, clock, A_MS) == ["them"]
    assert await us.known_dead() == ["them"]


async def test_no_lease_is_checked_while_all_renew_in_time(us: Membership, them: Membership, clock: ManualClock):
    await us.join()
    assert await us.expire() == Expiry([], next_in_ms=None)
    await them.join()
    assert await us.expire() == Expiry([], next_in_ms=8_500), "a while before its lease ends"
    clock.advance(us.settings.renew_every)
    await them.renew()
    assert await us.expire() == Expiry([], next_in_ms=8_500)


async def test_a_lease_does_not_end_because_the_server_refused_the_renewal(
    us: Membership, them: Membership, clock: ManualClock
):
    """Nobody heard of the server for a minute: it was away, or refused all requests."""
    await them.join()
    await watched(us, clock, LEASE / 2)
    clock.advance(timedelta(minutes=1))
    assert await watched(us, clock, PROOF - A_MS) == []
    assert await watched(us, clock, A_MS) == ["them"], "it had the time to renew"


async def test_a_failed_check_restarts_the_proof_time_of_every_lease(
    us: Membership, them: Membership, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """Between two looks that succeeded, however near to each other."""
    await them.join()
    await watched(us, clock, LEASE - A_MS)
    with monkeypatch.context() as refusing:
        refusing.setattr(us, "_valkey", None)
        with pytest.raises(AttributeError):
            await us.expire()
    assert await watched(us, clock, PROOF - A_MS) == []
    assert await watched(us, clock, A_MS) == ["them"]


async def test_a_forward_jump_of_the_server_clock_ends_no_lease_of_a_live_process(
    valkey: Valkey, unit: Unit, clock: ManualClock
):
    """A living process had no reason to renew early, and renews in its usual time."""
    jumped = timedelta(0)
    stopwatch = lambda: clock.pinned_ms - jumped / A_MS  # noqa: E731
    us = Membership(valkey, unit, "us", clock, stopwatch=stopwatch)
    them, dying = Membership(valkey, unit, "them", clock), Membership(valkey, unit, "dying", clock)
    for each in (us, them, dying):
        await each.join()
    assert await watched(us, clock, timedelta(seconds=5)) == []

    jumped = timedelta(minutes=1)
    clock.advance(jumped)

    assert await watched(us, clock, timedelta(seconds=2)) == []
    await them.renew()
    assert await watched(us, clock, LEASE - A_MS) == ["dying"]
    assert await watched(us, clock, A_MS) == ["them"], "it did not renew again"


async def test_a_dead_process_is_found_one_lease_after_the_server_clock_was_set_back(
    us: Membership, them: Membership, clock: ManualClock
):
    await them.join()
    await watched(us, clock, timedelta(seconds=1))
    clock.advance(-timedelta(hours=1))

    assert await watched(us, clock, LEASE - A_MS) == []
    assert await watched(us, clock, A_MS) == ["them"]


async def test_a_heartbeat_does_not_wait_for_other_commands_of_the_process(embedded: Valkey):
    us = Membership(embedded, embedded.unit("house"), "us")
    await us.join()
    turns = embedded._turns  # pyright: ignore[reportPrivateUsage]
    for _ in range(64):
        await turns.acquire()
    assert turns.locked(), "other commands wait"
    async with patience():
        assert await us.renew()
    for _ in range(64):
        turns.release()


async def test_a_lease_has_not_lasted_when_it_was_interrupted(valkey: Valkey, unit: Unit, clock: ManualClock):
    """What was held before the break may be with others, though the lease was renewed."""
    brief = Membership(
        valkey, unit, "us", clock, MembershipSettings(lease=timedelta(seconds=2), renew_every=A_MS * 500)
    )
    before_ms = monotonic_ms()
    assert not brief.lasted_since(before_ms)
    await brief.join()
    joined_ms = monotonic_ms()
    assert (brief.lasted_since(before_ms), brief.lasted_since(joined_ms)) == (False, True)

    clock.advance(timedelta(seconds=3))
    assert not await brief.renew()
    assert not brief.lasted_since(joined_ms)
    assert brief.lasted_since(monotonic_ms())


async def test_no_process_declares_itself_dead(us: Membership, them: Membership, clock: ManualClock):
    """If we die, it is not we who notice."""
    await us.join()
    await them.join()
    assert await watched(us, clock, timedelta(minutes=1)) == ["them"]
    assert [member.owner for member in await us.members()] == ["us"]


async def test_a_slow_process_lives_on_and_learns_that_it_was_late(us: Membership, clock: ManualClock):
    await us.join()
    clock.advance(LEASE - A_MS)
    assert await us.renew() is True
    clock.advance(LEASE)
    assert await us.renew() is False, "others may have acted as if it were dead"
    assert await us.renew() is True


async def test_a_process_declared_dead_learns_it_at_its_next_heartbeat(
    us: Membership, them: Membership, clock: ManualClock
):
    await them.join()
    await watched(us, clock, LEASE)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await them.renew()
    await them.join()
    assert await them.renew()


async def test_a_process_learns_that_the_server_lost_its_data(us: Membership, valkey: Valkey, unit: Unit):
    await us.join()
    await valkey.execute("DEL", MembershipKeys(unit).membership)
    with pytest.raises(LeaseLost):
        await us.renew()


async def test_a_process_that_left_is_not_reported_dead(us: Membership, them: Membership, clock: ManualClock):
    await them.join()
    await them.leave()
    await them.leave()
    assert await watched(us, clock, LEASE) == []
    assert await us.members() == []


async def test_all_processes_are_listed_with_their_remaining_time(us: Membership, them: Membership, clock: ManualClock):
    await them.join()
    clock.advance(timedelta(seconds=11))
    await us.join()
    assert await us.members() == [Member("them", -1_000), Member("us", 10_000)]


async def test_joining_wakes_the_process_that_checks_leases(us: Membership, valkey: Valkey, unit: Unit):
    """The leader may have found nobody to watch, and sleep without an end."""
    await us.join()
    assert await valkey.execute("LLEN", MembershipKeys(unit).wake) == 1


async def test_many_processes_that_died_together_are_found_in_batches(
    us: Membership, valkey: Valkey, unit: Unit, clock: ManualClock
):
    for n in range(101):
        await Membership(valkey, unit, f"p{n}", clock).join()
    await us.join()
    assert await watched(us, clock, LEASE - A_MS) == []
    clock.advance(A_MS)
    expiry = await us.expire()
    assert (len(expiry.owners), expiry.next_in_ms) == (100, 0), "at once"
    expiry = await us.expire()
    assert (len(expiry.owners), expiry.next_in_ms) == (1, None)


async def test_a_process_knows_the_guaranteed_end_of_its_lease(us: Membership):
    assert us.remaining_ms == 0
    await us.join()
    assert 0 < us.remaining_ms <= 10_000
    await us.leave()
    assert us.remaining_ms == 0


async def test_a_heartbeat_costs_the_server_three_commands(embedded: Valkey):
    """The call, TIME and ZADD: at one in seven seconds, the greatest part of what an idle process may cost."""
    us = Membership(embedded, embedded.unit("house"), "us")
    await us.join()
    await us.renew()
    await until_due(2)  # a second renewal in the same millisecond is compared twice
    before = await calls(embedded)
    await us.renew()
    assert await calls(embedded) - before == {
        "cmdstat_evalsha": 1,
        "cmdstat_time": 1,
        "cmdstat_zadd": 1,
        "cmdstat_info": 1,
    }


async def calls(valkey: Valkey) -> Counter[str]:
    stats = await valkey.execute("INFO", "commandstats")
    return Counter({command: each["calls"] for command, each in stats.items()})


async def test_invalid_arguments_are_refused(us: Membership, valkey: Valkey, unit: Unit):
    with pytest.raises(InvalidArgument, match="owner"):
        Membership(valkey, unit, "")
    with pytest.raises(ValidationError, match="renew_every"):
        MembershipSettings(lease=timedelta(seconds=5))
    with pytest.raises(ValidationError, match="lease"):
        MembershipSettings(lease=timedelta(0))


async def test_a_process_declared_dead_is_listed_until_it_is_forgotten_or_alive(us: Membership, them: Membership):
    await us.join()
    await them.join()

    assert await us.declare_dead("them")
    assert not await us.declare_dead("them"), "reported before"
    assert [member.owner for member in await us.members()] == ["us"]
    assert await us.known_dead() == ["them"]

    await them.join()
    assert await us.known_dead() == [], "it lives"
    assert await us.declare_dead("them")
    await us.forget_dead("them")
    assert await us.known_dead() == []


async def test_a_process_that_left_or_never_joined_cannot_be_declared_dead(us: Membership, them: Membership):
    await them.join()
    await them.leave()

    assert not await us.declare_dead("them")
    assert not await us.declare_dead("stranger")
    assert await us.known_dead() == []
    with pytest.raises(InvalidArgument, match="this process"):
        await us.declare_dead("us")


async def test_the_timekeeper_is_woken_when_a_process_is_declared_dead(
    us: Membership, them: Membership, valkey: Valkey
):
    await them.join()
    await valkey.execute("DEL", MembershipKeys(valkey.unit("house")).wake)

    await us.declare_dead("them")

    assert await valkey.execute("LLEN", MembershipKeys(valkey.unit("house")).wake) == 1


async def test_attempts_that_fail_when_another_one_succeeds_are_not_logged():
    started, unhandled = list[int](), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    all_started = asyncio.Event()

    async def attempt() -> int:
        number = len(started)
        started.append(number)
        if len(started) == 20:
            all_started.set()
        await all_started.wait()
        if number == 0:
            return number
        raise ValkeyUnavailable("away")

    assert await membership._first_result(attempt, every_s=0.001) == 0  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    assert unhandled == []
