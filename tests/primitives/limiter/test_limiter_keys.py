"""Limits per key: `limiter.acquire("user:42")`."""

import asyncio
from datetime import timedelta

import pytest

from tests.primitives.limiter.conftest import SECOND, NewLimiter
from tests.waiting import until
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.limiter import Limit, Limiter, LimiterSettings
from tidegate.primitives.limiter.ledger import LimiterKeys
from tidegate.runtime.waiting import end
from tidegate.storage.valkey import Unit, Valkey

TEN = Limit(name="ten", permits=10, window=SECOND)


async def test_each_key_has_its_own_limits(new_limiter: NewLimiter):
    limiter, other_process = new_limiter(TEN), new_limiter(TEN)

    assert len((await limiter.take(8, "user:42")).grants) == 8
    assert len((await other_process.take(8, "user:42")).grants) == 2
    assert len((await limiter.take(8, "user:43")).grants) == 8
    assert len((await limiter.take(8)).grants) == 8
    assert (await limiter.status("user:42")).usage[0].used == 10


async def test_callers_of_different_keys_do_not_wait_for_each_other(new_limiter: NewLimiter):
    limiter = new_limiter(TEN)
    await limiter.pause(timedelta(minutes=1), "user:42")
    waiting = asyncio.create_task(limiter.acquire("user:42"))

    (await limiter.acquire("user:43")).use()

    assert not waiting.done()
    await end(waiting)
    await until(lambda: all(queue.is_idle for queue in limiter._queues.values()))  # pyright: ignore[reportPrivateUsage]


async def test_a_new_key_is_granted_immediately_when_the_server_has_its_data(
    valkey: Valkey, unit: Unit, clock: ManualClock
):
    settings = LimiterSettings(limits=(TEN,), rates=())
    limiter = Limiter(valkey, unit, clock, settings)
    assert (await limiter.take(1)).wait == settings.quiet_start
    clock.advance(settings.quiet_start)

    assert len((await limiter.take(1, "user:42")).grants) == 1

    keys = [*vars(LimiterKeys(unit)).values(), *vars(LimiterKeys(unit, "user:42")).values()]
    await valkey.execute("DEL", *keys)
    assert (await limiter.take(1, "user:43")).grants == (), "the server lost its data"


async def test_a_server_clock_that_was_set_back_does_not_delay_new_keys(valkey: Valkey, unit: Unit, clock: ManualClock):
    limiter = Limiter(valkey, unit, clock, LimiterSettings(limits=(TEN,), rates=()))
    await limiter.take(1)
    clock.advance(-timedelta(hours=1))

    assert len((await limiter.take(1, "user:42")).grants) == 1


async def test_unused_keys_leave_no_state_on_the_server_or_in_memory(
    valkey: Valkey, unit: Unit, new_limiter: NewLimiter
):
    limiter = new_limiter(Limit(name="second", permits=10, window=SECOND))
    await limiter.pause(timedelta(hours=1), "paused")
    waiting = asyncio.create_task(limiter.acquire("paused"))
    await until(lambda: limiter._waiting.callers == 1)  # pyright: ignore[reportPrivateUsage]
    for number in range(2_100):
        await limiter.take(1, f"token-{number}")

    assert len(limiter._queues) <= 1_001  # pyright: ignore[reportPrivateUsage]
    await end(waiting)
    await until(lambda: all(queue.is_idle for queue in limiter._queues.values()))  # pyright: ignore[reportPrivateUsage]
    keys = LimiterKeys(unit, "token-7")
    assert "token-7" not in keys.state
    assert 0 < await valkey.execute("PTTL", keys.state) <= 120_000


async def test_a_pause_survives_the_retention_time_of_a_limiter(valkey: Valkey, unit: Unit, new_limiter: NewLimiter):
    limiter = new_limiter(TEN)
    await limiter.pause(timedelta(days=6))

    assert await valkey.execute("PTTL", LimiterKeys(unit).state) > 6 * 86_400_000


async def test_a_key_that_is_too_long_is_refused(new_limiter: NewLimiter):
    with pytest.raises(InvalidArgument, match="at most 500"):
        await new_limiter(TEN).acquire("x" * 501)
