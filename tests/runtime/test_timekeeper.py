import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest

from tests.primitives.wakeup.waiters import until_blocked
from tests.waiting import lasting_at_least, patience
from tidegate.core.backoff import Backoff
from tidegate.core.clock import SystemClock
from tidegate.core.errors import InvalidArgument, ValkeyUnavailable
from tidegate.primitives.timers import Timer, Timers
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.timekeeper import DueSource, Timekeeper
from tidegate.storage.valkey import Key, Valkey

NEVER = 3_600_000
SOON = Backoff(first=timedelta(milliseconds=1), most=timedelta(milliseconds=1))


class Source:
    """Answers as planned, then that nothing is due; tells how often it was asked."""

    def __init__(self, *answers: int | BaseException | None) -> None:
        self.answers, self.fired = list(answers), 0
        self._changed = asyncio.Condition()

    async def fire(self) -> int | None:
        async with self._changed:
            self.fired += 1
            self._changed.notify_all()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def has_fired(self, times: int) -> None:
        async with patience(), self._changed:
            await self._changed.wait_for(lambda: self.fired >= times)


@pytest.fixture
def key(valkey: Valkey) -> Key:
    return valkey.unit("keeper").key("wake")


@pytest.fixture
def bell(valkey: Valkey, key: Key) -> Wakeup:
    return Wakeup(valkey, key)


@asynccontextmanager
async def kept(bell: Wakeup, *sources: DueSource) -> AsyncGenerator[asyncio.Event]:
    stopping = asyncio.Event()
    running = asyncio.create_task(Timekeeper(bell, sources, backoff=SOON).run(stopping))
    try:
        yield stopping
    finally:
        stopping.set()
        async with patience():
            await running


async def test_work_due_at_the_start_is_done_immediately(bell: Wakeup):
    one, other = Source(), Source()
    async with kept(bell, one, other):
        await one.has_fired(1)
        await other.has_fired(1)


async def test_it_sleeps_until_the_next_due_time(bell: Wakeup):
    source = Source(50, NEVER)
    with lasting_at_least(0.045):
        async with kept(bell, source):
            await source.has_fired(2)  # not only after its longest sleep of 15 minutes
    assert source.fired == 2


async def test_it_sends_no_command_while_nothing_is_due(bell: Wakeup, valkey: Valkey, key: Key):
    source = Source(NEVER)
    async with kept(bell, source):
        await until_blocked(valkey, key)
        assert source.fired == 1


async def test_a_source_with_more_work_is_called_again_immediately(bell: Wakeup):
    source = Source(0, 0, 0, NEVER)
    async with kept(bell, source):
        await source.has_fired(4)


async def test_a_signal_wakes_it(bell: Wakeup, valkey: Valkey, key: Key):
    source = Source(None, NEVER)
    async with kept(bell, source):
        await until_blocked(valkey, key)
        await bell.notify()
        await source.has_fired(2)


async def test_a_signal_before_its_start_is_received(bell: Wakeup):
    await bell.notify()
    source = Source(None, NEVER)
    async with kept(bell, source):
        await source.has_fired(2)


class RungWhileFiring(Source):
    """Something earlier is planned just after it looked, and before it sleeps."""

    def __init__(self, bell: Wakeup, key: Key, valkey: Valkey) -> None:
        super().__init__()
        self._bell, self._key, self._valkey = bell, key, valkey

    async def fire(self) -> int | None:
        await super().fire()
        if self.fired == 1:
            await until_blocked(self._valkey, self._key)
            await self._bell.notify()
            while await self._valkey.execute("LLEN", self._key):
                pass  # until the listener has taken the token
            await until_blocked(self._valkey, self._key)
        return NEVER


async def test_a_signal_between_firing_and_waiting_is_not_lost(bell: Wakeup, key: Key, valkey: Valkey):
    source = RungWhileFiring(bell, key, valkey)
    async with kept(bell, source):
        await source.has_fired(2)


@pytest.mark.parametrize("error", [ValkeyUnavailable("gone"), ZeroDivisionError(), asyncio.CancelledError()])
async def test_a_failing_source_is_retried_and_delays_no_other(bell: Wakeup, error: BaseException):
    bad, good = Source(error, error, error, NEVER), Source(1, 1, 1, NEVER)
    async with kept(bell, bad, good):
        await good.has_fired(4)
        await bad.has_fired(4)


async def test_a_hanging_source_delays_no_other(bell: Wakeup):
    class Hanging(Source):
        async def fire(self) -> int | None:
            await asyncio.Event().wait()
            return None

    good = Source(1, 1, 1, NEVER)
    running = asyncio.create_task(Timekeeper(bell, [Hanging(), good]).run(asyncio.Event()))
    await good.has_fired(4)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_consecutive_failures_pause_longer_and_a_signal_does_not_shorten_the_pause(
    bell: Wakeup, valkey: Valkey, key: Key
):
    long = Backoff(first=timedelta(hours=1), most=timedelta(hours=1))
    bad, good = Source(ValkeyUnavailable("gone")), Source()
    stopping = asyncio.Event()
    running = asyncio.create_task(Timekeeper(bell, [bad, good], backoff=long).run(stopping))
    await bad.has_fired(1)
    await until_blocked(valkey, key)
    await bell.notify()
    await good.has_fired(2)
    assert bad.fired == 1
    stopping.set()
    async with patience():
        await running


async def test_after_the_stop_no_timer_is_fired(bell: Wakeup):
    class StopsItself(Source):
        stopping: asyncio.Event | None = None

        async def fire(self) -> int | None:
            await super().fire()
            assert self.stopping is not None
            self.stopping.set()  # the lead is lost while a firing is under way
            return 0

    source, stopping = StopsItself(), asyncio.Event()
    source.stopping = stopping
    await Timekeeper(bell, [source]).run(stopping)
    assert source.fired == 1


async def test_after_cancellation_no_timer_is_fired_and_the_successor_is_woken(bell: Wakeup, valkey: Valkey, key: Key):
    """Its listener may have taken a ring that it could not act on any more."""
    source = Source(NEVER)
    running = asyncio.create_task(Timekeeper(bell, [source]).run(asyncio.Event()))
    await until_blocked(valkey, key)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert source.fired == 1
    assert await valkey.execute("LLEN", key) == 1


async def test_a_frozen_predecessor_takes_no_signals(bell: Wakeup, valkey: Valkey, key: Key):
    frozen = asyncio.create_task(valkey.execute_blocking("BLPOP", key, "60", within_s=60))
    await until_blocked(valkey, key)
    source = Source(None, NEVER)
    async with kept(bell, source):
        await frozen
        await until_blocked(valkey, key)
        await bell.notify()
        await source.has_fired(2)


async def test_it_survives_a_broken_connection(bell: Wakeup, valkey: Valkey, key: Key):
    source = Source(None, None, None)
    async with kept(bell, source):
        await until_blocked(valkey, key)
        await valkey.execute("CLIENT", "KILL", "TYPE", "normal")
        await source.has_fired(2)
        await until_blocked(valkey, key)
        await bell.notify()
        await source.has_fired(3)


async def test_timers_are_promoted_when_due_also_an_earlier_one_added_meanwhile(valkey: Valkey):
    unit = valkey.unit("jobs")
    timers = Timers(valkey, unit, unit.key("stream"))
    async with kept(timers.wakeup, timers):
        now = SystemClock().now()
        await timers.schedule("far", timedelta(hours=1))
        await timers.schedule_many([Timer(f"t{n}", now + timedelta(milliseconds=20 * n)) for n in range(10)])
        lateness = await _lateness_of_first(10, valkey, timers.stream)  # how late on average: bench/timers.py
    assert min(lateness) >= 0


async def _lateness_of_first(count: int, valkey: Valkey, stream: Key) -> list[int]:
    entries: list[tuple[bytes, dict[bytes, bytes]]] = []
    while len(entries) < count:
        last = entries[-1][0] if entries else b"0"
        reply = await valkey.execute_blocking("XREAD", "BLOCK", 60_000, "STREAMS", stream, last, within_s=60)
        entries += reply[stream.encode()]
    return [int(entry_id.split(b"-")[0]) - int(fields[b"due_ms"]) for entry_id, fields in entries]


async def test_without_sources_it_is_refused(bell: Wakeup):
    with pytest.raises(InvalidArgument, match="sources"):
        Timekeeper(bell, [])
