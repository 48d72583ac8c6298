"""What the server grants, by a clock that stands still until told."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from tests.primitives.limiter.conftest import HIGH_ONLY, LOW_ONLY, SECOND, NewLimiter, ms, rules
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.limiter import Limit, Limiter, LimiterKeys, LimiterSettings, Priority, Rate
from tidegate.storage.valkey import Unit, Valkey

HIGH, LOW = Priority.HIGH, Priority.LOW
TEN = Limit(name="ten", permits=10, window=SECOND)
SLACK = ms(50 + 20)
"""What `use_by` and `guard` add to every window by default."""


async def taken(limiter: Limiter, most: int, priority: Priority = HIGH) -> int:
    return len((await limiter.take(most, priority=priority)).grants)


async def used(limiter: Limiter) -> dict[str, int]:
    return {each.name: each.used for each in (await limiter.status()).usage}


async def test_a_batch_is_granted_partially_when_the_limit_is_reached(new_limiter: NewLimiter):
    limiter = new_limiter(TEN)

    assert await taken(limiter, 7) == 7
    assert await taken(limiter, 7) == 3
    assert await taken(limiter, 7) == 0


async def test_a_permit_used_late_and_one_used_immediately_are_in_different_windows(
    new_limiter: NewLimiter, clock: ManualClock
):
    """Ten may be used 50 ms after they were granted and travel 20 ms longer: the upstream sees them 70 ms later."""
    limiter = new_limiter(TEN)
    assert await taken(limiter, 10) == 10

    clock.advance(SECOND + SLACK)
    assert await taken(limiter, 1) == 0

    clock.advance(ms(1))
    assert await taken(limiter, 10) == 10


async def test_a_refusal_says_when_permits_will_be_available(new_limiter: NewLimiter, clock: ManualClock):
    limiter = new_limiter(TEN)
    await limiter.take(4)
    clock.advance(ms(300))
    await limiter.take(6)

    refused = await limiter.take(1)
    assert refused.grants == ()
    assert refused.wait == SECOND + SLACK - ms(300) + ms(1)

    clock.advance(refused.wait)
    assert await taken(limiter, 10) == 4


async def test_a_rate_grants_its_burst_and_then_its_rate(new_limiter: NewLimiter, clock: ManualClock):
    limiter = new_limiter(Rate(name="pace", per_second=100, burst=20))
    assert await taken(limiter, 100) == 20

    clock.advance(ms(100))
    assert await taken(limiter, 100) == 10

    clock.advance(timedelta(hours=1))
    assert await taken(limiter, 100) == 20


async def test_all_rules_apply_together(new_limiter: NewLimiter, clock: ManualClock):
    """Sustained 450/s with bursts of 50 gives 500 in the first second; the window allows no more even then."""
    limiter = new_limiter(
        Rate(name="sustained", per_second=450, burst=200), Limit(name="second", permits=500, window=SECOND)
    )
    granted = 0
    for _ in range(107):
        granted += await taken(limiter, 500)
        clock.advance(ms(10))

    assert granted == 500


async def test_a_low_request_refused_by_its_own_cap_costs_no_shared_permits(new_limiter: NewLimiter):
    limiter = new_limiter(TEN, Limit(name="low", permits=4, window=SECOND, priorities=LOW_ONLY))
    assert await taken(limiter, 9, LOW) == 4
    assert await used(limiter) == {"ten": 4, "low": 4}

    assert await taken(limiter, 9, LOW) == 0

    assert await used(limiter) == {"ten": 4, "low": 4}
    assert await taken(limiter, 9, HIGH) == 6


async def test_low_priority_requests_stay_below_their_cap(valkey: Valkey, unit: Unit, clock: ManualClock):
    limiter = Limiter(valkey, unit, clock, LimiterSettings(quiet_start=timedelta(0)))
    granted = 0
    for _ in range(100):
        granted += await taken(limiter, 100, LOW)
        clock.advance(ms(10))

    assert granted == 350


async def test_the_daily_limit_holds_in_any_24_hours(new_limiter: NewLimiter, clock: ManualClock):
    """Half of it at 23:00 and half at 01:00 fill the day until 23:00, whatever midnight says."""
    limiter = new_limiter(Limit(name="day", permits=1000, window=timedelta(days=1)))
    clock.advance(timedelta(hours=23))
    assert await taken(limiter, 500) == 500
    clock.advance(timedelta(hours=2))
    assert await taken(limiter, 1000) == 500

    clock.advance(timedelta(hours=21, minutes=59))
    refused = await limiter.take(1)
    assert refused.grants == ()

    clock.advance(refused.wait)
    assert await taken(limiter, 1000) == 500
    assert refused.wait < timedelta(minutes=3)


async def test_setting_the_server_clock_back_grants_nothing_extra(new_limiter: NewLimiter, clock: ManualClock):
    limiter = new_limiter(TEN, Rate(name="pace", per_second=10, burst=10))
    assert await taken(limiter, 10) == 10

    clock.advance(-timedelta(seconds=30))
    refused = await limiter.take(10)
    assert refused.grants == ()
    assert refused.wait >= timedelta(seconds=30)

    clock.advance(timedelta(seconds=30))
    assert await taken(limiter, 10) == 0


async def test_a_server_that_lost_its_data_grants_nothing_until_its_windows_are_empty(
    valkey: Valkey, unit: Unit, clock: ManualClock
):
    limiter = Limiter(valkey, unit, clock, LimiterSettings(limits=(TEN,), rates=()))
    refused = await limiter.take(1)
    assert refused.wait == LimiterSettings().quiet_start > SECOND + SLACK
    clock.advance(refused.wait)
    assert await taken(limiter, 10) == 10

    await valkey.execute("DEL", *vars(LimiterKeys(unit)).values())

    assert await taken(limiter, 1) == 0
    clock.advance(refused.wait)
    assert await taken(limiter, 1) == 1


async def test_during_a_pause_of_the_upstream_no_permit_is_granted(new_limiter: NewLimiter, clock: ManualClock):
    limiter, other = new_limiter(TEN), new_limiter(TEN)
    await limiter.pause(timedelta(seconds=30))
    await other.pause(timedelta(seconds=5))

    refused = await other.take(1, priority=HIGH)
    assert refused.grants == ()
    assert refused.wait == timedelta(seconds=30)
    assert (await limiter.status()).paused_for == timedelta(seconds=30)

    clock.advance(timedelta(seconds=30))
    assert await taken(other, 1) == 1


async def test_high_priority_is_served_first_across_processes(new_limiter: NewLimiter, clock: ManualClock):
    one, other = (new_limiter(Rate(name="pace", per_second=100, burst=20), low_floor=0) for _ in range(2))
    await one.take(20)
    assert await taken(other, 30, LOW) == 0
    high = await one.take(8, priority=HIGH)

    clock.advance(ms(100))

    assert await taken(other, 30, LOW) == 2, "eight of ten are left to HIGH"
    clock.advance(high.wait)
    assert await taken(one, 8, HIGH) == 8


async def test_a_high_priority_waiter_that_does_not_return_is_soon_forgotten(
    new_limiter: NewLimiter, clock: ManualClock
):
    one, other = (new_limiter(Rate(name="pace", per_second=100, burst=20), low_floor=0) for _ in range(2))
    await one.take(20)
    high = await one.take(1000, priority=HIGH)

    clock.advance(high.wait + ms(250))
    assert await taken(other, 5, LOW) == 0
    clock.advance(ms(1))
    assert await taken(other, 5, LOW) == 5


async def test_low_priority_keeps_its_floor_under_high_priority_load(new_limiter: NewLimiter, clock: ManualClock):
    """Both ask all the time, and for more than there is."""
    high, low = (new_limiter(Rate(name="pace", per_second=100, burst=20), low_floor=0.05) for _ in range(2))
    granted = {HIGH: 0, LOW: 0}
    for step in range(1001):
        granted[HIGH] += await taken(high, 500, HIGH)
        if step % 10 == 0:
            granted[LOW] += await taken(low, 500, LOW)
        clock.advance(ms(10))

    assert granted[LOW] == pytest.approx(50, abs=5)
    assert granted[HIGH] + granted[LOW] == pytest.approx(1020, abs=5), "the floor takes from HIGH and wastes nothing"


async def test_rules_for_high_priority_only_do_not_delay_low_priority(new_limiter: NewLimiter):
    """HIGH waits for a limit of its own, so leaving it more of the shared one would help nobody."""
    high, low = (
        new_limiter(TEN, Limit(name="high", permits=2, window=SECOND, priorities=HIGH_ONLY), low_floor=0)
        for _ in range(2)
    )
    assert await taken(high, 100, HIGH) == 2

    assert await taken(low, 100, LOW) == 8


async def test_a_new_caller_leaves_reserved_permits_to_waiting_callers(new_limiter: NewLimiter, clock: ManualClock):
    first, second, newcomer = (new_limiter(Rate(name="pace", per_second=100, burst=20)) for _ in range(3))
    await first.take(20)
    waits = [(await each.take(6)).wait for each in (first, second)]
    assert waits == [ms(60), ms(120)], "turns of six each, one after the other"

    clock.advance(ms(120))

    assert await taken(newcomer, 5) == 0
    assert await taken(first, 6) == 6
    assert await taken(second, 6) == 6


async def test_the_status_shows_usage_and_waiting_callers(new_limiter: NewLimiter):
    limiter = new_limiter(TEN, Rate(name="pace", per_second=10, burst=8))
    await limiter.take(12, priority=HIGH)
    await limiter.take(5, priority=LOW)

    status = await limiter.status()

    assert [(each.name, each.used, each.limit) for each in status.usage] == [("ten", 8, 10), ("pace", 8, 8)]
    assert status.waiting == {HIGH: 4, LOW: 5}
    assert status.paused_for == timedelta(0)


async def test_an_unused_limiter_leaves_only_one_number(new_limiter: NewLimiter, valkey: Valkey, unit: Unit):
    limiter = new_limiter(TEN)
    await limiter.take(20)

    keys = vars(LimiterKeys(unit))
    assert len(keys) == 5
    for name, key in keys.items():
        left_ms = await valkey.execute("PTTL", key)
        assert left_ms == -1 if name == "memory" else 1_000 < left_ms <= 62_000


async def test_the_state_stays_small_under_any_traffic(
    new_limiter: NewLimiter, valkey: Valkey, unit: Unit, clock: ManualClock
):
    """A day is kept in a thousand slots: 300 seconds lie in four or five of them."""
    limiter = new_limiter(Limit(name="day", permits=10**9, window=timedelta(days=1)))
    for _ in range(300):
        await limiter.take(1)
        clock.advance(SECOND)

    assert await valkey.execute("HLEN", LimiterKeys(unit).counts) <= 5
    assert await used(limiter) == {"day": 300}

    clock.advance(timedelta(days=1, minutes=2))
    assert await used(limiter) == {"day": 0}
    assert await valkey.execute("EXISTS", LimiterKeys(unit).counts) == 0
    assert await valkey.execute("EXISTS", LimiterKeys(unit).leaving) == 0


@pytest.mark.parametrize("most", [0, -1, 10_001, 1.5])
async def test_an_invalid_batch_is_refused(new_limiter: NewLimiter, most: int):
    with pytest.raises(InvalidArgument, match="most is"):
        await new_limiter(TEN).take(most)


@pytest.mark.parametrize("span", [timedelta(0), -SECOND, timedelta(days=8)])
async def test_an_invalid_pause_is_refused(new_limiter: NewLimiter, span: timedelta):
    with pytest.raises(InvalidArgument, match="span is"):
        await new_limiter(TEN).pause(span)


async def test_an_unknown_priority_is_refused(new_limiter: NewLimiter):
    with pytest.raises(InvalidArgument, match="priority is 'urgent'"):
        await new_limiter(TEN).take(1, priority="urgent")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("senseless", "reason"),
    [
        ({"limits": (), "rates": ()}, "no rule binds high"),
        ({"limits": (TEN, TEN), "rates": ()}, "two rules have one name"),
        ({"limits": (TEN.model_copy(update={"priorities": LOW_ONLY}),), "rates": ()}, "no rule binds high"),
        ({"rates": (Rate(name="r", per_second=1000, burst=50),)}, "use 90"),
        ({"use_by": timedelta(0)}, "use_by"),
        ({"low_floor": 0.9}, "low_floor"),
        ({"speed": 3}, "speed"),
    ],
)
def test_invalid_settings_are_refused(senseless: dict[str, object], reason: str):
    with pytest.raises(ValidationError, match=reason):
        LimiterSettings.model_validate(senseless)


@pytest.mark.parametrize("permits", [0, -5])
def test_a_limit_needs_at_least_one_permit(permits: int):
    with pytest.raises(ValidationError, match="permits"):
        rules(Limit(name="x", permits=permits, window=SECOND))
