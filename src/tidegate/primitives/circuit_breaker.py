"""A circuit breaker for one server, within one process.

    closed ──(enough of the last calls failed)──▶ open ──(pause over, next call)──▶ trying
       ▲                                           ▲                                 │ │
       │                                           └────────(trials failed)──────────┘ │
       └───────────────────────────────────────────────(trials succeeded)──────────────┘

It keeps no timers and starts no tasks: each change happens in a call, so an unused breaker costs nothing.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import ParamSpec, TypeVar

from tidegate.core.arguments import require_name
from tidegate.core.clock import Clock, SystemClock, milliseconds, monotonic_ms, to_ms
from tidegate.core.errors import CircuitOpen, InvalidArgument, ServerRefused, Unavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import Gauge
from tidegate.core.transitions import Moves
from tidegate.primitives.settings import CircuitBreakerSettings

P = ParamSpec("P")
T = TypeVar("T")

log = get_logger(__name__)


class CircuitBreakerState(StrEnum):
    """State of a circuit breaker, which decides what happens to the next call."""

    CLOSED = "closed"  # passes
    OPEN = "open"  # refused
    TRYING = "trying"  # passes as a trial, refused when enough trials are under way


MOVES: Moves[CircuitBreakerState] = {
    CircuitBreakerState.CLOSED: {CircuitBreakerState.OPEN},
    CircuitBreakerState.OPEN: {CircuitBreakerState.TRYING},
    CircuitBreakerState.TRYING: {CircuitBreakerState.CLOSED, CircuitBreakerState.OPEN},
}

_GAUGE_VALUES = {CircuitBreakerState.CLOSED: 0, CircuitBreakerState.TRYING: 1, CircuitBreakerState.OPEN: 2}


class CircuitBreaker:
    """Refuses calls to a server that keeps failing, and makes trial calls to find out whether it is back.

    `failures` are the errors that count as failures of the server. Any other error means that the server answered, and
    counts as a success. A call that was cancelled, or refused by an inner breaker, is not counted; so a timeout belongs
    inside the breaker, not around it. A result counts only for the state in which its call began.

    Example:
        breaker = CircuitBreaker("weather", failures=(ConnectionError,))
        forecast = await breaker.call(fetch, "Berlin")  # raises `CircuitOpen` while the server is considered down
    """

    def __init__(
        self,
        name: str,
        settings: CircuitBreakerSettings | None = None,
        *,
        failures: tuple[type[Exception], ...] = (Unavailable, OSError, TimeoutError),
        state_gauge: Gauge | None = None,
        clock: Clock | None = None,
        elapsed_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        if not failures:
            raise InvalidArgument("failures", failures, "must name at least one kind of error")
        self.name = require_name("name", name)
        self.settings = settings or CircuitBreakerSettings()
        self._failures, self._gauge = failures, state_gauge
        self._clock, self._elapsed_ms = clock or SystemClock(), elapsed_ms
        self._state, self._round = CircuitBreakerState.CLOSED, 0
        self._begin_round()
        self._show_state()

    @property
    def state(self) -> CircuitBreakerState:
        """The current state. An open breaker stays open until the first call after its pause."""
        return self._state

    @property
    def wanted(self) -> int:
        """Number of calls that would decide the state: missing trials, or 1 if no trials are needed."""
        if self._state is CircuitBreakerState.CLOSED:
            return 1
        if self._state is CircuitBreakerState.OPEN:
            return self.settings.trials
        return max(1, self.settings.trials - self._under_way - len(self._outcomes))

    @property
    def pause_left_s(self) -> float:
        """How much longer calls are refused; 0 unless the breaker is open."""
        return max(0.0, self._pause_left_ms / 1000) if self._state is CircuitBreakerState.OPEN else 0.0

    @property
    def _pause_left_ms(self) -> float:
        return self._began_ms + milliseconds(self.settings.open_for) - self._elapsed_ms()

    async def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function`, or raise `CircuitOpen` without calling it."""
        with self.attempt():
            return await function(*args, **kwargs)

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Wrap one call in a block: raises `CircuitOpen` at its start, and counts its result."""
        self._admit()
        began_in = self._round
        try:
            yield
        except BaseException as error:
            self._conclude(began_in, failed=self._is_failure(error))
            raise
        else:
            self._conclude(began_in, failed=False)

    def _is_failure(self, error: BaseException) -> bool | None:
        """Whether an error is a failure of the server (True) or an answer of it (False); None if it is neither."""
        if isinstance(error, CircuitOpen) or not isinstance(error, Exception):
            return None
        return isinstance(error, self._failures) and not isinstance(error, ServerRefused)

    def _admit(self) -> None:
        """Let the next call begin, or raise `CircuitOpen`."""
        if self._state is CircuitBreakerState.CLOSED:
            return
        pause_left_ms = self._pause_left_ms
        if self._state is CircuitBreakerState.OPEN and pause_left_ms <= 0:
            self._enter(CircuitBreakerState.TRYING)
            log.info("breaker.tried", breaker=self.name, trials=self.settings.trials)
        elif not self._is_trial_free() and pause_left_ms <= 0:
            # Trials that hang would otherwise block all calls forever, so a new series of trials begins.
            self._begin_round()
        if self._state is CircuitBreakerState.OPEN or not self._is_trial_free():
            metrics.CIRCUIT_BREAKER_REFUSED.labels(self.name).inc()
            raise CircuitOpen(self.name, retry_at_ms=to_ms(self._clock.now()) + math.ceil(pause_left_ms))
        self._under_way += 1
        self._began_ms = self._elapsed_ms()  # recent trials do not hang, however old their series is

    def _is_trial_free(self) -> bool:
        return self._under_way + len(self._outcomes) < self.settings.trials

    def _conclude(self, began_in: int, *, failed: bool | None) -> None:
        """Count the result of a call (None: not counted) and change the state if it decides."""
        # The state changed during the call, so its result says nothing about the current round.
        if began_in != self._round:
            return
        if self._state is CircuitBreakerState.TRYING:
            self._under_way -= 1
        if failed is None:
            return
        self._outcomes.append(failed)
        if self._state is CircuitBreakerState.CLOSED:
            self._judge_window()
        else:
            self._judge_trials()

    def _judge_window(self) -> None:
        size = self.settings.window
        # A window that is not full proves nothing: after a start, one failure would open the breaker.
        if len(self._outcomes) == size and sum(self._outcomes) / size >= self.settings.failure_rate:
            self._open()

    def _judge_trials(self) -> None:
        """Decide as soon as the missing trials cannot change the result."""
        size, failed = self.settings.trials, sum(self._outcomes)
        missing = size - len(self._outcomes)
        if failed / size >= self.settings.failure_rate:
            self._open()
        elif (failed + missing) / size < self.settings.failure_rate:
            self._enter(CircuitBreakerState.CLOSED)
            log.info("breaker.closed", breaker=self.name)

    def _open(self) -> None:
        failed, calls = sum(self._outcomes), len(self._outcomes)
        self._enter(CircuitBreakerState.OPEN)
        log.warning(
            "breaker.opened",
            breaker=self.name,
            failed=failed,
            calls=calls,
            open_for_ms=milliseconds(self.settings.open_for),
        )

    def _enter(self, target: CircuitBreakerState) -> None:
        assert target in MOVES[self._state], f"{self._state} -> {target}"
        self._state = target
        self._begin_round()
        self._show_state()

    def _begin_round(self) -> None:
        """Forget all results, and ignore those of calls in progress."""
        self._round += 1
        self._began_ms = self._elapsed_ms()
        self._under_way = 0
        self._outcomes: deque[bool] = deque(
            maxlen=self.settings.window if self._state is CircuitBreakerState.CLOSED else None
        )

    def _show_state(self) -> None:
        if self._gauge is not None:
            self._gauge.set(_GAUGE_VALUES[self._state])
