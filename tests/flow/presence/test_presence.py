from collections import Counter
from datetime import timedelta

import pytest
from pydantic import ValidationError

from tests.waiting import until_due
from tidegate.flow.presence import Lapse, Member, Presence, PresenceKeys, PresenceSettings
from tidegate.kernel.clock import ManualClock, monotonic_ms
from tidegate.kernel.errors import InvalidArgument, LeaseLost
from tidegate.valkey import Unit, Valkey

A_MS = timedelta(milliseconds=1)
LEASE = timedelta(seconds=10)


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit("house")


@pytest.fixture
def us(valkey: Valkey, unit: Unit, clock: ManualClock) -> Presence:
    return Presence(valkey, unit, "us", clock)


@pytest.fixture
def them(valkey: Valkey, unit: Unit, clock: ManualClock) -> Presence:
    return Presence(valkey, unit, "them", clock)


async def test_a_process_lives_for_ten_seconds_after_each_sign(us: Presence, them: Presence, clock: ManualClock):
    await us.join()
    await them.join()
    clock.advance(LEASE - A_MS)
    assert await us.lapsed() == Lapse([], next_in_ms=1)
    assert await them.renew()
    clock.advance(A_MS)
    assert await us.lapsed() == Lapse([], next_in_ms=9_999)
    clock.advance(LEASE - 2 * A_MS)
    assert await us.lapsed() == Lapse([], next_in_ms=1)
    clock.advance(A_MS)
    assert await us.lapsed() == Lapse(["them"], next_in_ms=None)


async def test_a_lease_that_was_broken_has_not_lasted(valkey: Valkey, unit: Unit, clock: ManualClock):
    """What was held before the break may be with others, though the lease was renewed."""
    brief = Presence(valkey, unit, "us", clock, PresenceSettings(lease=timedelta(seconds=2), renew_every=A_MS * 500))
    before_ms = monotonic_ms()
    assert not brief.lasted_since(before_ms)
    await brief.join()
    joined_ms = monotonic_ms()
    assert (brief.lasted_since(before_ms), brief.lasted_since(joined_ms)) == (False, True)

    clock.advance(timedelta(seconds=3))
    assert not await brief.renew()
    assert not brief.lasted_since(joined_ms)
    assert brief.lasted_since(monotonic_ms())


async def test_our_own_lease_never_appears_in_what_we_ask(us: Presence, them: Presence, clock: ManualClock):
    """If we die, it is not we who notice."""
    await us.join()
    assert await us.lapsed() == Lapse([], next_in_ms=None)
    clock.advance(timedelta(seconds=1))
    await them.join()
    assert await us.lapsed() == Lapse([], next_in_ms=10_000)
    assert await them.lapsed() == Lapse([], next_in_ms=9_000)
    clock.advance(timedelta(minutes=1))
    assert await us.lapsed() == Lapse(["them"], next_in_ms=None)
    assert await them.lapsed() == Lapse(["us"], next_in_ms=None)


async def test_the_dead_are_listed_until_they_are_removed(us: Presence, them: Presence, clock: ManualClock):
    await them.join()
    clock.advance(LEASE)
    for _ in range(2):
        assert (await us.lapsed()).owners == ["them"]
    assert await us.remove("them")
    assert not await us.remove("them")
    assert (await us.lapsed()).owners == []


async def test_the_living_cannot_be_removed(us: Presence, them: Presence, clock: ManualClock):
    await them.join()
    clock.advance(LEASE - A_MS)
    assert not await us.remove("them")
    assert await them.renew()


async def test_one_who_was_slow_lives_on_and_is_told(us: Presence, clock: ManualClock):
    await us.join()
    clock.advance(LEASE - A_MS)
    assert await us.renew() is True
    clock.advance(LEASE)
    assert await us.renew() is False, "others may have acted as if it were dead"
    assert await us.renew() is True


async def test_one_who_was_removed_is_told_so(us: Presence, them: Presence, clock: ManualClock):
    await them.join()
    clock.advance(LEASE)
    await us.remove("them")
    with pytest.raises(LeaseLost):
        await them.renew()
    with pytest.raises(LeaseLost):
        await them.renew()
    await them.join()
    assert await them.renew()


async def test_one_whose_server_lost_everything_is_told_so(us: Presence, valkey: Valkey, unit: Unit):
    await us.join()
    await valkey.execute("DEL", PresenceKeys(unit).presence)
    with pytest.raises(LeaseLost):
        await us.renew()


async def test_one_who_left_is_not_looked_for(us: Presence, them: Presence, clock: ManualClock):
    await them.join()
    await them.leave()
    await them.leave()
    clock.advance(LEASE)
    assert await us.lapsed() == Lapse([], next_in_ms=None)
    assert await us.members() == []


async def test_everybody_is_listed_with_what_remains(us: Presence, them: Presence, clock: ManualClock):
    await them.join()
    clock.advance(timedelta(seconds=11))
    await us.join()
    assert await us.members() == [Member("them", -1_000), Member("us", 10_000)]


async def test_joining_rings_for_whoever_watches_over_the_others(us: Presence, valkey: Valkey, unit: Unit):
    """The leader may have found nobody to watch, and sleep without an end."""
    await us.join()
    assert await valkey.execute("LLEN", PresenceKeys(unit).wake) == 1


async def test_a_crowd_that_died_together_is_found_in_parts(
    us: Presence, valkey: Valkey, unit: Unit, clock: ManualClock
):
    for n in range(101):
        await Presence(valkey, unit, f"p{n}", clock).join()
    await us.join()
    clock.advance(LEASE)
    lapse = await us.lapsed()
    assert (len(lapse.owners), lapse.next_in_ms) == (100, 0), "at once"
    for owner in lapse.owners:
        assert await us.remove(owner)
    lapse = await us.lapsed()
    assert (len(lapse.owners), lapse.next_in_ms) == (1, None)


async def test_a_process_knows_how_long_it_certainly_lives(us: Presence):
    assert us.remaining_ms == 0
    await us.join()
    assert 0 < us.remaining_ms <= 10_000
    await us.leave()
    assert us.remaining_ms == 0


async def test_a_sign_of_life_costs_the_server_three_commands(embedded: Valkey):
    """The call, TIME and ZADD: at one in seven seconds, the greatest part of what an idle process may cost."""
    us = Presence(embedded, embedded.unit("house"), "us")
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


async def test_nonsense_is_refused(us: Presence, valkey: Valkey, unit: Unit):
    with pytest.raises(InvalidArgument, match="owner"):
        Presence(valkey, unit, "")
    with pytest.raises(InvalidArgument, match="ourselves"):
        await us.remove("us")
    with pytest.raises(ValidationError, match="renew_every"):
        PresenceSettings(lease=timedelta(seconds=5))
    with pytest.raises(ValidationError, match="lease"):
        PresenceSettings(lease=timedelta(0))


async def test_a_process_that_is_declared_dead_is_listed_until_it_is_forgotten_or_lives(us: Presence, them: Presence):
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


async def test_one_that_left_or_never_came_cannot_be_declared_dead(us: Presence, them: Presence):
    await them.join()
    await them.leave()

    assert not await us.declare_dead("them")
    assert not await us.declare_dead("stranger")
    assert await us.known_dead() == []
    with pytest.raises(InvalidArgument, match="ourselves"):
        await us.declare_dead("us")


async def test_the_timekeeper_is_woken_when_a_process_is_declared_dead(us: Presence, them: Presence, valkey: Valkey):
    await them.join()
    await valkey.execute("DEL", PresenceKeys(valkey.unit("house")).wake)

    await us.declare_dead("them")

    assert await valkey.execute("LLEN", PresenceKeys(valkey.unit("house")).wake) == 1
