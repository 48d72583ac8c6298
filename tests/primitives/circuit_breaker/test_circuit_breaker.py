"""What a breaker promises to its callers and to the server behind it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from tidegate.core.clock import ManualClock, to_ms
from tidegate.core.errors import CircuitOpen, DatabaseUnavailable, InvalidArgument, NotFound, ValkeyUnavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerSettings, CircuitBreakerState

HALF_MINUTE = timedelta(seconds=30)


@pytest.fixture
def breaker(clock: ManualClock) -> CircuitBreaker:
    return CircuitBreaker("valkey", clock=clock, elapsed_ms=lambda: float(clock.pinned_ms))


def succeed(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        with breaker.attempt():
            pass


def fail(breaker: CircuitBreaker, times: int = 1, error: Callable[[], BaseException] = ValkeyUnavailable) -> None:
    for _ in range(times):
        raised = error()
        with pytest.raises(type(raised)), breaker.attempt():
            raise raised


def trip(breaker: CircuitBreaker) -> None:
    fail(breaker, times=10)
    assert breaker.state is CircuitBreakerState.OPEN


def test_it_opens_when_half_of_the_last_ten_calls_failed(breaker: CircuitBreaker):
    succeed(breaker, times=5)
    fail(breaker, times=4)
    assert breaker.state is CircuitBreakerState.CLOSED

    fail(breaker)

    assert breaker.state is CircuitBreakerState.OPEN


def test_fewer_calls_than_the_window_do_not_open_it(breaker: CircuitBreaker):
    fail(breaker, times=9)

    assert breaker.state is CircuitBreakerState.CLOSED


def test_calls_older_than_the_window_are_forgotten(breaker: CircuitBreaker):
    fail(breaker, times=4)
    succeed(breaker, times=10)
    fail(breaker, times=4)

    assert breaker.state is CircuitBreakerState.CLOSED


async def test_an_open_breaker_does_not_call_and_reports_when_to_retry(breaker: CircuitBreaker, clock: ManualClock):
    trip(breaker)
    clock.advance(timedelta(seconds=10))
    called = False

    async def call() -> None:
        nonlocal called
        called = True

    with pytest.raises(CircuitOpen) as refused:
        await breaker.call(call)

    assert not called
    assert refused.value.retry_at_ms == to_ms(clock.now()) + 20_000


def test_it_stays_open_until_the_end_of_its_pause(breaker: CircuitBreaker, clock: ManualClock):
    trip(breaker)

    clock.advance(HALF_MINUTE - timedelta(milliseconds=1))
    with pytest.raises(CircuitOpen):
        succeed(breaker)
    clock.advance(timedelta(milliseconds=1))
    succeed(breaker)

    assert breaker.state is CircuitBreakerState.TRYING


def test_three_successful_trials_of_five_close_it(breaker: CircuitBreaker, clock: ManualClock):
    """With three of five good, the failures cannot reach one half any more."""
    trip(breaker)
    clock.advance(HALF_MINUTE)

    succeed(breaker, times=2)
    fail(breaker, times=2)
    assert breaker.state is CircuitBreakerState.TRYING
    succeed(breaker)

    assert breaker.state is CircuitBreakerState.CLOSED


def test_three_failed_trials_of_five_reopen_it_for_a_full_pause(breaker: CircuitBreaker, clock: ManualClock):
    trip(breaker)
    clock.advance(HALF_MINUTE)

    fail(breaker, times=3)

    assert breaker.state is CircuitBreakerState.OPEN
    with pytest.raises(CircuitOpen) as refused:
        succeed(breaker)
    assert refused.value.retry_at_ms == to_ms(clock.now() + HALF_MINUTE)


def test_it_closes_with_an_empty_window(breaker: CircuitBreaker, clock: ManualClock):
    """Failures from before the outage must not open it again at the first hiccup."""
    trip(breaker)
    clock.advance(HALF_MINUTE)
    succeed(breaker, times=3)

    fail(breaker, times=4)
    succeed(breaker, times=6)

    assert breaker.state is CircuitBreakerState.CLOSED


@pytest.mark.smoke
@pytest.mark.race
async def test_concurrent_callers_make_only_five_trials(breaker: CircuitBreaker, clock: ManualClock):
    trip(breaker)
    clock.advance(HALF_MINUTE)
    answered, at_once, most = asyncio.Event(), 0, 0

    async def call() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await answered.wait()
        at_once -= 1

    crowd = [asyncio.create_task(breaker.call(call)) for _ in range(40)]
    refused, trials = await asyncio.wait(crowd, return_when=asyncio.FIRST_EXCEPTION)
    answered.set()
    results = await asyncio.gather(*refused, *trials, return_exceptions=True)

    assert most == 5
    assert sum(isinstance(result, CircuitOpen) for result in results) == 35
    assert breaker.state is CircuitBreakerState.CLOSED


async def test_a_cancelled_call_is_not_counted_and_frees_its_trial(breaker: CircuitBreaker, clock: ManualClock):
    trip(breaker)
    clock.advance(HALF_MINUTE)
    for _ in range(20):
        task = asyncio.create_task(breaker.call(asyncio.Event().wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert breaker.state is CircuitBreakerState.TRYING
    succeed(breaker, times=3)
    assert breaker.state is CircuitBreakerState.CLOSED


def test_an_error_of_another_type_counts_as_success(breaker: CircuitBreaker):
    fail(breaker, times=20, error=lambda: NotFound("run", 7))

    assert breaker.state is CircuitBreakerState.CLOSED


def test_the_caller_chooses_which_errors_count(clock: ManualClock):
    breaker = CircuitBreaker("database", failures=(DatabaseUnavailable,), clock=clock)

    fail(breaker, times=10, error=ValkeyUnavailable)
    assert breaker.state is CircuitBreakerState.CLOSED
    fail(breaker, times=5, error=DatabaseUnavailable)
    assert breaker.state is CircuitBreakerState.OPEN


def test_a_refusal_by_an_inner_breaker_is_not_counted_by_the_outer_one(breaker: CircuitBreaker):
    fail(breaker, times=20, error=lambda: CircuitOpen("inner", retry_at_ms=1))

    assert breaker.state is CircuitBreakerState.CLOSED


def test_late_results_from_before_the_opening_are_ignored(breaker: CircuitBreaker, clock: ManualClock):
    stragglers = [breaker.attempt() for _ in range(5)]
    for straggler in stragglers:
        straggler.__enter__()
    trip(breaker)
    clock.advance(HALF_MINUTE)
    succeed(breaker)

    for straggler in stragglers:
        straggler.__exit__(None, None, None)

    assert breaker.state is CircuitBreakerState.TRYING


def test_hanging_trials_do_not_keep_the_breaker_open_forever(breaker: CircuitBreaker, clock: ManualClock):
    trip(breaker)
    clock.advance(HALF_MINUTE)
    hanging = [breaker.attempt() for _ in range(5)]
    for trial in hanging:
        trial.__enter__()
    with pytest.raises(CircuitOpen) as refused:
        succeed(breaker)

    assert refused.value.retry_at_ms == to_ms(clock.now() + HALF_MINUTE)
    clock.advance(HALF_MINUTE)
    succeed(breaker, times=3)

    assert breaker.state is CircuitBreakerState.CLOSED


def test_recent_trials_are_not_given_up(breaker: CircuitBreaker, clock: ManualClock):
    """However long ago the first trials of the round ended: one call too many must not make the results void."""
    trip(breaker)
    clock.advance(HALF_MINUTE)
    succeed(breaker, times=2)
    clock.advance(HALF_MINUTE)
    under_way = [breaker.attempt() for _ in range(3)]
    for trial in under_way:
        trial.__enter__()

    with pytest.raises(CircuitOpen):
        succeed(breaker)
    under_way[0].__exit__(None, None, None)

    assert breaker.state is CircuitBreakerState.CLOSED


def test_it_reports_how_many_calls_would_decide(breaker: CircuitBreaker, clock: ManualClock):
    assert breaker.wanted == 1
    trip(breaker)
    assert breaker.wanted == 5
    clock.advance(HALF_MINUTE)
    succeed(breaker, times=2)
    assert breaker.wanted == 3


def test_infrequent_calls_close_it_too(breaker: CircuitBreaker, clock: ManualClock):
    """Trials further apart than the pause still add up."""
    trip(breaker)
    for _ in range(3):
        clock.advance(10 * HALF_MINUTE)
        succeed(breaker)

    assert breaker.state is CircuitBreakerState.CLOSED


def test_every_state_change_is_logged_and_exported(clock: ManualClock):
    configure_logs(level="info")
    gauge = metrics.Gauge("breaker_under_test", "For one test.", registry=None)
    breaker = CircuitBreaker("database", state_gauge=gauge, clock=clock, elapsed_ms=lambda: float(clock.pinned_ms))
    refused = metrics.CIRCUIT_BREAKER_REFUSED.labels("database")
    before, shown = refused._value.get(), [gauge._value.get()]  # pyright: ignore[reportPrivateUsage]

    with capture_logs() as lines:
        trip(breaker)
        shown.append(gauge._value.get())  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(CircuitOpen):
            succeed(breaker)
        clock.advance(HALF_MINUTE)
        succeed(breaker)
        shown.append(gauge._value.get())  # pyright: ignore[reportPrivateUsage]
        succeed(breaker, times=2)
        shown.append(gauge._value.get())  # pyright: ignore[reportPrivateUsage]

    assert [line["event"] for line in lines] == ["breaker.opened", "breaker.tried", "breaker.closed"]
    assert lines[0]["failed"] == 10
    assert lines[0]["open_for_ms"] == 30_000
    assert shown == [0, 2, 1, 0]
    assert refused._value.get() == before + 1  # pyright: ignore[reportPrivateUsage]


def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="name"):
        CircuitBreaker("")
    with pytest.raises(InvalidArgument, match="failures"):
        CircuitBreaker("valkey", failures=())


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("window", 0),
        ("trials", 0),
        ("failure_rate", 0),
        ("failure_rate", 1.1),
        ("open_for", timedelta(0)),
        ("open_four", timedelta(seconds=1)),
    ],
)
def test_invalid_settings_are_refused(setting: str, value: object):
    with pytest.raises(ValidationError, match=setting):
        CircuitBreakerSettings.model_validate({setting: value})
