"""Permits for calls to a rate-limited upstream, shared by all processes.

No time window of a rule, wherever it begins, contains more permits than the rule allows.

    limiter = Limiter(valkey, valkey.unit("rate"), settings=LimiterSettings())
    answer = await limiter.run(lambda: client.get(url))

While the Valkey server is unavailable, no permits are granted: `acquire` and `take` raise `ValkeyUnavailable`.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from tidegate.core.arguments import require_at_most, require_positive
from tidegate.core.clock import Clock, SystemClock, milliseconds, monotonic_ms
from tidegate.core.errors import InvalidArgument
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.limiter.ledger import Demand, Grant, Ledger, LimiterKeys, LimiterStatus, make_plan
from tidegate.primitives.limiter.queue import PermitQueue, WaitingCount
from tidegate.primitives.limiter.settings import LimiterSettings
from tidegate.storage.valkey import Unit, Valkey

log = get_logger(__name__)
T = TypeVar("T")

_MOST_AT_ONCE = 10_000
_LONGEST_PAUSE = timedelta(days=7)
_LONGEST_KEY = 500
_IDLE_KEYS_KEPT = 1_000
"""Number of queues kept in memory for keys without waiting callers."""


@dataclass(frozen=True)
class Batch:
    """Granted permits, and how long to wait for more: zero if all were granted."""

    grants: tuple[Grant, ...]
    wait: timedelta


class Limiter:
    """Grants permits, HIGH before LOW. A permit is valid for a short time; each call needs one.

    Callers without a key share the limits. Each key has its own set of the limits.

    Example:
        limiter = Limiter(valkey, valkey.unit("weather-api"), settings=rules)
        (await limiter.acquire("user:42")).use()  # then send the request
        forecast = await limiter.run(lambda: fetch("Berlin"), "user:42")  # the same in one step
    """

    def __init__(
        self,
        valkey: Valkey,
        unit: Unit,
        clock: Clock | None = None,
        settings: LimiterSettings | None = None,
        *,
        stopwatch: Callable[[], float] = monotonic_ms,
    ) -> None:
        self.settings = settings or LimiterSettings()
        self._valkey, self._unit, self._clock, self._stopwatch = valkey, unit, clock or SystemClock(), stopwatch
        self._plan = make_plan(self.settings)
        self._waiting = WaitingCount()
        self._queues: OrderedDict[str, PermitQueue] = OrderedDict()
        self._most_kept = _IDLE_KEYS_KEPT

    async def run(
        self,
        call: Callable[[], Awaitable[T]],
        key: str = "",
        *,
        priority: Priority = Priority.HIGH,
        units: int = 1,
    ) -> T:
        """Wait for a permit, and start the call while it is valid."""
        grant = await self.acquire(key, priority=priority, units=units)
        grant.use()
        return await call()

    async def acquire(self, key: str = "", *, priority: Priority = Priority.HIGH, units: int = 1) -> Grant:
        """Wait for a permit. Call its `use` right before the request.

        Raises `ValkeyUnavailable` if the server cannot be asked: no permit, no call.
        """
        priority = _require_priority(priority)
        return await self._queue_of(key).acquire(priority, self._affordable(priority, units))

    async def take(self, most: int, key: str = "", *, priority: Priority = Priority.HIGH) -> Batch:
        """Take up to `most` permits that are available now. Unlike `acquire`, does not wait."""
        require_positive("most", most)
        require_at_most("most", most, _MOST_AT_ONCE)
        queue = self._queue_of(key)
        [answer] = await queue.ledger.take([Demand(_require_priority(priority), [1] * _to_whole("most", most))])
        one = (priority, 1, answer.ends_at_ms, answer.granted_at_ms, self._stopwatch)
        grants = tuple(Grant(*one, on_late=queue.count_again) for _ in range(answer.granted))
        return Batch(grants, timedelta(milliseconds=answer.wait_ms))

    async def pause(self, span: timedelta, key: str = "") -> None:
        """Grant no permits for `span`, because the upstream answered "too many requests". The longest pause counts.

        Permits granted before stay valid until they expire.
        """
        require_positive("span", span.total_seconds())
        require_at_most("span", span.total_seconds(), _LONGEST_PAUSE.total_seconds())
        paused_for = await self._queue_of(key).ledger.pause(span)
        log.warning("limiter.paused", limiter=self._unit.name, paused_ms=milliseconds(paused_for))

    async def status(self, key: str = "") -> LimiterStatus:
        """Usage of every rule, units that callers wait for, and the rest of a pause."""
        return await self._queue_of(key).ledger.status()

    def _queue_of(self, key: str) -> PermitQueue:
        """Return the queue of a key, created on first use. Too many idle queues are forgotten."""
        if isinstance(key, Priority):
            raise InvalidArgument("key", key, "is a priority; pass it by name: priority=...")
        if len(key) > _LONGEST_KEY:
            raise InvalidArgument("key", f"{key[:20]}...", f"must have at most {_LONGEST_KEY} characters")
        # Removed and added again, so that the dictionary is ordered by last use.
        queue = self._queues.pop(key, None)
        if queue is None:
            keys = LimiterKeys(self._unit, key)
            ledger = Ledger(self._valkey, keys, self._clock, self._plan, self._stopwatch)
            queue = PermitQueue(self._unit.name, ledger, self.settings, self._stopwatch, self._waiting)
        self._queues[key] = queue
        if len(self._queues) > self._most_kept:
            self._forget_idle_queues()
        return queue

    def _forget_idle_queues(self) -> None:
        """Keep the queues of the keys that were used last, and those in which a caller waits."""
        idle = [key for key, queue in self._queues.items() if queue.is_idle]
        for key in idle[: len(idle) - _IDLE_KEYS_KEPT // 2]:
            del self._queues[key]
        # Only after as many new keys again: each search reads all keys.
        self._most_kept = len(self._queues) + _IDLE_KEYS_KEPT // 2

    def _affordable(self, priority: Priority, units: int) -> int:
        """A request for more than a rule can ever give would wait for ever."""
        require_positive("units", units)
        require_at_most("units", units, self._plan.most_units[priority])
        return _to_whole("units", units)


def _require_priority(priority: Priority) -> Priority:
    try:
        return Priority(priority)
    except ValueError:
        raise InvalidArgument("priority", priority, f"must be one of {', '.join(Priority)}") from None


def _to_whole(name: str, value: int) -> int:
    if value != int(value):
        raise InvalidArgument(name, value, "must be a whole number")
    return int(value)
