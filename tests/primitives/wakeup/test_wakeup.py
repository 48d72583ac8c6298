import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.primitives.wakeup.waiters import until_blocked
from tests.processes import start_warm
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.valkey import Key, Valkey

SIGNALLING_PROCESS = Path(__file__).with_name("signalling_process.py")


@pytest.fixture
def key(valkey: Valkey) -> Key:
    return valkey.unit("bell").key("wake")


@pytest.fixture
def bell(valkey: Valkey, key: Key) -> Wakeup:
    return Wakeup(valkey, key)


@pytest.fixture
async def bell_without_blocking(valkey: Valkey, key: Key) -> AsyncIterator[Wakeup]:
    """On a server that forbids blocking reads, as some managed ones do."""
    other = await Valkey.connect(valkey.url)
    other._info = dataclasses.replace(other.info, can_block=False)  # pyright: ignore[reportPrivateUsage]
    yield Wakeup(other, key)
    await other.close()


async def test_a_signal_before_a_wait_is_received(bell: Wakeup):
    await bell.notify()
    assert await bell.wait(60)


async def test_several_signals_before_a_wait_are_one(bell: Wakeup, valkey: Valkey, key: Key):
    for _ in range(5):
        await bell.notify()
    assert await valkey.execute("LLEN", key) == 1
    assert await bell.wait(60)
    assert not await bell.wait(0.001)


async def test_a_signal_wakes_the_waiter(bell: Wakeup, valkey: Valkey, key: Key):
    waiting = asyncio.create_task(bell.wait(30))
    await until_blocked(valkey, key)
    await bell.notify()
    assert await waiting, "woken, not ended by its limit"


async def test_without_a_signal_the_wait_times_out(bell: Wakeup):
    assert not await bell.wait(0.01)


async def test_a_broken_connection_counts_as_a_signal(embedded: Valkey):
    key = embedded.unit("bell").key("wake")
    bell = Wakeup(embedded, key)
    waiting = asyncio.create_task(bell.wait(30))
    await until_blocked(embedded, key)
    await embedded.execute("CLIENT", "KILL", "TYPE", "normal")
    assert await waiting
    assert not await bell.wait(0.01), "and the next wait has a new connection"


async def test_a_cancelled_waiter_leaves_the_next_signal_to_others(bell: Wakeup, valkey: Valkey, key: Key):
    waiting = asyncio.create_task(bell.wait(30))
    await until_blocked(valkey, key)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await until_blocked(valkey, key, 0)
    await bell.notify()
    assert await bell.wait(60)


async def test_a_waiter_that_stops_passes_the_signal_on(bell: Wakeup, valkey: Valkey, key: Key):
    """Also while the server still takes the cancelled wait for a live one, and gives it the first ring."""
    ended = asyncio.create_task(valkey.execute_blocking("BLPOP", key, "60", within_s=60))
    await until_blocked(valkey, key)
    await bell.pass_on()
    await ended
    assert await bell.wait(60)


async def test_an_owner_receives_the_next_signal_although_frozen_waiters_came_first(
    bell: Wakeup, valkey: Valkey, key: Key
):
    """A process that is stopped still waits at the server, and is served first."""
    frozen = [asyncio.create_task(valkey.execute_blocking("BLPOP", key, "60", within_s=60)) for _ in range(3)]
    await until_blocked(valkey, key, 3)

    await bell.claim()
    waiting = asyncio.create_task(bell.wait(10))
    await until_blocked(valkey, key)
    await bell.notify()

    assert await waiting
    await asyncio.gather(*frozen)


async def test_claiming_ownership_takes_no_signal(bell: Wakeup):
    await bell.notify()
    await bell.claim()
    assert await bell.wait(60)
    await bell.claim()
    assert not await bell.wait(0.01)


async def test_without_blocking_reads_a_signal_is_received_too(bell_without_blocking: Wakeup):
    assert not await bell_without_blocking.wait(0.02)
    waiting = asyncio.create_task(bell_without_blocking.wait(30))
    await bell_without_blocking.notify()
    assert await waiting


@pytest.mark.parametrize("within_s", [0, -1, float("nan")])
async def test_a_wait_without_a_timeout_is_refused(bell: Wakeup, within_s: float):
    with pytest.raises(InvalidArgument, match="within_s"):
        await bell.wait(within_s)


@pytest.mark.race
async def test_reading_state_after_each_wake_up_misses_no_change_of_other_processes(embedded: Valkey):
    bell, processes, times = Wakeup(embedded, embedded.unit("bell").key("wake")), 3, 300
    signallers = [
        await start_warm(sys.executable, str(SIGNALLING_PROCESS), embedded.url, str(times)) for _ in range(processes)
    ]
    seen = 0
    while seen < processes * times:
        assert await bell.wait(20), f"a ring was lost at {seen}"
        seen = int(await embedded.execute("GET", embedded.unit("bell").key("count")) or 0)
    assert [await signaller.wait() for signaller in signallers] == [0] * processes
