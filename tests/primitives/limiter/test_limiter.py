"""Callers of one process: who is woken, when, and with how many questions to the server."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.primitives.limiter.conftest import SECOND, NewLimiter, ms, rules
from tests.waiting import is_pending, patience, until
from tidegate.core.clock import ManualClock, SystemClock
from tidegate.core.errors import GrantVoid, InvalidArgument, TooManyWaiting, ValkeyUnavailable
from tidegate.primitives.limiter import Grant, Limit, Limiter, Priority, Rate
from tidegate.primitives.limiter.ledger import GrantedRequests
from tidegate.primitives.limiter.queue import CallerQueue, Waiter
from tidegate.storage.valkey import Unit, Valkey

HIGH, LOW = Priority.HIGH, Priority.LOW
TEN = Limit(name="ten", permits=10, window=SECOND)
BRIEF = Limit(name="brief", permits=2, window=ms(50))


class Stopwatch:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now_ms = 1000.0

    def __call__(self) -> float:
        return self.now_ms


class ServerCalls:
    """Counts the questions on their way to the server; `before_each` happens while one is under way."""

    def __init__(self, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.before_each: Callable[[], object] = lambda: None
        ask: Callable[..., Awaitable[Any]] = valkey.execute

        async def counted(*command: Any) -> Any:
            self.count += 1
            self.before_each()
            return await ask(*command)

        monkeypatch.setattr(valkey, "execute", counted)


@pytest.fixture
def server_calls(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> ServerCalls:
    return ServerCalls(valkey, monkeypatch)


async def test_a_permit_has_its_grant_time_on_a_monotonic_clock(new_limiter: NewLimiter, clock: ManualClock):
    limiter = new_limiter(Limit(name="many", permits=1000, window=SECOND))
    first, granted_ms = await limiter.acquire(), clock.pinned_ms
    clock.advance(ms(70))
    [later] = (await limiter.take(1)).grants
    clock.advance(ms(-2000))
    [set_back] = (await limiter.take(1)).grants

    assert (first.granted_at_ms, later.granted_at_ms) == (granted_ms, granted_ms + 70)
    assert set_back.granted_at_ms == later.granted_at_ms


async def test_concurrent_callers_share_one_request(new_limiter: NewLimiter, server_calls: ServerCalls):
    limiter = new_limiter(Limit(name="many", permits=1000, window=SECOND))
    await limiter.take(1)
    server_calls.count = 0

    grants = await asyncio.gather(*[limiter.acquire(priority=priority) for priority in (HIGH, LOW) for _ in range(300)])

    assert server_calls.count == 1
    assert all(grant.is_alive for grant in grants)


async def test_callers_are_woken_in_order_and_high_priority_first(valkey: Valkey, unit: Unit):
    limiter = Limiter(valkey, unit, SystemClock(), rules(BRIEF, low_floor=0, pace=ms(5), guard=ms(1000)))
    woken: list[str] = []

    async def caller(name: str, priority: Priority) -> None:
        await limiter.acquire(priority=priority)
        woken.append(name)

    async with asyncio.TaskGroup() as callers:
        for name, priority in [("l1", LOW), ("l2", LOW), ("h1", HIGH), ("h2", HIGH), ("l3", LOW), ("h3", HIGH)]:
            callers.create_task(caller(name, priority))

    assert woken == ["h1", "h2", "h3", "l1", "l2", "l3"]


async def test_a_call_is_started_with_a_permit(new_limiter: NewLimiter):
    limiter = new_limiter(TEN)

    async def call() -> str:
        return f"{(await limiter.status()).usage[0].used} used"

    assert await limiter.run(call, priority=LOW, units=3) == "3 used"


async def test_an_expired_permit_cannot_be_used(valkey: Valkey, unit: Unit, clock: ManualClock):
    stopwatch = Stopwatch()
    limiter = Limiter(valkey, unit, clock, rules(TEN), stopwatch=stopwatch)
    grant = await limiter.acquire()

    stopwatch.now_ms += 50

    assert not grant.is_alive
    with pytest.raises(GrantVoid, match="expired 0 ms ago"):
        grant.use()


async def test_a_permit_can_be_used_once():
    grant = Grant(HIGH, 1, ends_at_ms=float("inf"), granted_at_ms=0)
    grant.use()

    with pytest.raises(GrantVoid, match="used already"):
        grant.use()


async def test_the_lifetime_of_a_permit_starts_before_the_request_for_it(
    valkey: Valkey, unit: Unit, clock: ManualClock, server_calls: ServerCalls
):
    """The answer took 30 of its 50 ms; what is left is 20."""
    stopwatch = Stopwatch()
    limiter = Limiter(valkey, unit, clock, rules(TEN), stopwatch=stopwatch)
    await limiter.take(1)

    def answer_slowly() -> None:
        stopwatch.now_ms += 30

    server_calls.before_each = answer_slowly
    [grant] = (await limiter.take(1)).grants

    assert grant.ends_at_ms == stopwatch.now_ms + 20


async def test_a_server_slower_than_the_lifetime_of_permits_is_unavailable(
    valkey: Valkey, unit: Unit, clock: ManualClock, server_calls: ServerCalls
):
    stopwatch = Stopwatch()
    limiter = Limiter(valkey, unit, clock, rules(TEN, pace=ms(1)), stopwatch=stopwatch)
    await limiter.take(1)
    server_calls.count = 0

    def answer_too_late() -> None:
        stopwatch.now_ms += 51

    server_calls.before_each = answer_too_late
    with pytest.raises(ValkeyUnavailable, match="later than permits"):
        await limiter.acquire()
    assert server_calls.count == 5


async def test_a_caller_woken_too_late_gets_another_permit(valkey: Valkey, unit: Unit, clock: ManualClock):
    """Something else in the process took 60 ms between the answer and the caller's turn."""
    stopwatch = Stopwatch()
    limiter = Limiter(valkey, unit, clock, rules(TEN, pace=ms(1)), stopwatch=stopwatch)

    async def busy_once() -> None:
        await limiter.acquire()
        stopwatch.now_ms += 60

    async with asyncio.TaskGroup() as callers:
        callers.create_task(busy_once())
        late = callers.create_task(limiter.acquire())

    assert late.result().is_alive
    assert (await limiter.status()).usage[0].used == 3, "the one that ended is spent"


async def test_requests_for_several_units_are_granted_completely_and_in_order(
    new_limiter: NewLimiter, clock: ManualClock
):
    limiter = new_limiter(TEN)
    first = await limiter.acquire(units=6)
    heavy, light = asyncio.create_task(limiter.acquire(units=5)), asyncio.create_task(limiter.acquire(units=1))
    clock.advance(timedelta(seconds=2))

    grants = await asyncio.gather(heavy, light)

    assert [grant.units for grant in (first, *grants)] == [6, 5, 1]


@pytest.mark.parametrize("units", [0, -1, 9, 1.5])
async def test_invalid_units_are_refused(new_limiter: NewLimiter, units: int):
    limiter = new_limiter(TEN, Rate(name="pace", per_second=10, burst=8))

    with pytest.raises(InvalidArgument, match="units is"):
        await limiter.acquire(units=units)


async def test_a_full_queue_refuses_immediately(new_limiter: NewLimiter):
    limiter = new_limiter(TEN, most_waiting=3)
    await limiter.pause(timedelta(minutes=1))
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)

    with pytest.raises(TooManyWaiting, match="3 already wait"):
        await limiter.acquire(priority=LOW)

    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_without_the_server_no_permit_is_granted(unit: Unit):
    away = Valkey("unix:///nonexistent/valkey.sock")
    limiter = Limiter(away, unit, SystemClock(), rules(TEN))

    outcomes = await asyncio.gather(*[limiter.acquire() for _ in range(5)], return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [ValkeyUnavailable] * 5
    await away.close()


async def test_a_late_request_is_counted_again_when_the_server_is_available(
    new_limiter: NewLimiter, clock: ManualClock, server_calls: ServerCalls
):
    limiter = new_limiter(TEN)
    in_time, late = (await limiter.take(2)).grants
    for grant in (in_time, late):
        grant.use()
    in_time.sent()
    clock.advance(ms(51))

    def fail() -> None:
        raise ValkeyUnavailable("gone")

    server_calls.before_each = fail
    late.sent()
    with pytest.raises(ValkeyUnavailable):
        await limiter.acquire()
    server_calls.before_each = lambda: None
    await limiter.acquire()

    assert (await limiter.status()).usage[0].used == 4


async def test_permits_for_requests_already_sent_come_first():
    line = CallerQueue(HIGH, Stopwatch())
    waiter, overdue, served_before = Waiter(1), Waiter(2, is_overdue=True), Waiter(3)
    line.join(waiter, in_front=False)
    line.join(overdue, in_front=True)
    line.join(served_before, in_front=True)
    assert [each.units for each in line.waiting] == [2, 3, 1]


async def test_cancelled_callers_take_no_permits(new_limiter: NewLimiter, server_calls: ServerCalls):
    """Three ask, two go while the question is under way; the permits serve those who came meanwhile."""
    limiter = new_limiter(Limit(name="three", permits=3, window=SECOND))
    leaving = [asyncio.create_task(limiter.acquire()) for _ in range(2)]
    staying = asyncio.create_task(limiter.acquire())
    late: list[asyncio.Task[Grant]] = []

    def go() -> None:
        server_calls.before_each = lambda: None
        for each in leaving:
            each.cancel()
        late.extend(asyncio.create_task(limiter.acquire()) for _ in range(2))

    server_calls.before_each = go
    await asyncio.gather(*leaving, return_exceptions=True)
    await staying

    assert len(await asyncio.gather(*late)) == 2
    assert (await limiter.status()).usage[0].used == 3


async def test_a_permit_goes_to_the_next_caller_when_its_caller_was_just_cancelled():
    """Cancelled, but not yet run to leave the line."""
    line, cancelled, next_one = CallerQueue(HIGH, Stopwatch()), Waiter(1), Waiter(1)
    for waiter in (cancelled, next_one):
        line.join(waiter, in_front=False)
    cancelled.granted.cancel()

    line.hand_out(GrantedRequests(granted=1, units=1, wait_ms=0, ends_at_ms=2000, granted_at_ms=0))

    assert next_one.granted.result().is_alive
    assert len(line) == 0


async def test_without_waiting_callers_no_task_runs(new_limiter: NewLimiter):
    limiter = new_limiter(TEN)
    await limiter.pause(timedelta(hours=1))
    before = asyncio.all_tasks()
    caller = asyncio.create_task(limiter.acquire())
    await limiter.status()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)

    dispatchers = asyncio.all_tasks() - before
    async with patience():
        await asyncio.gather(*dispatchers, return_exceptions=True)

    assert asyncio.all_tasks() == before


async def test_a_refused_process_does_not_ask_before_the_given_time(
    valkey: Valkey, unit: Unit, clock: ManualClock, server_calls: ServerCalls
):
    hourly = Limit(name="one", permits=1, window=timedelta(hours=1))
    limiter = Limiter(valkey, unit, clock, rules(hourly, pace=ms(1)))
    await limiter.acquire()
    server_calls.count = 0

    refused = asyncio.create_task(limiter.acquire())
    await until(lambda: server_calls.count)
    assert await is_pending(refused)

    assert server_calls.count == 1
    refused.cancel()
    await asyncio.gather(refused, return_exceptions=True)
