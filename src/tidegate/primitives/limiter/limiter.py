"""Permits for calls to a rationed upstream, shared by all processes, exact in any window.

    limiter = Limiter(valkey, valkey.unit("rate"), SystemClock(), LimiterSettings())
    answer = await limiter.run(lambda: client.get(url), Priority.HIGH)

Callers of one process wait in two lines, and one task asks the server for all of them: as long as somebody waits, no
oftener than `pace`, and not before the time that the server named. Without the server there are no permits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from tidegate.core.arguments import require_at_most, require_positive
from tidegate.core.clock import Clock, SystemClock, milliseconds, monotonic_ms
from tidegate.core.errors import GrantVoid, InvalidArgument, TooManyWaiting, ValkeyUnavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.limiter.grant import Grant
from tidegate.primitives.limiter.ledger import Answer, Demand, Ledger, LimiterStatus
from tidegate.primitives.limiter.line import Line, Waiter
from tidegate.primitives.limiter.settings import LimiterSettings
from tidegate.storage.valkey import Unit, Valkey

log = get_logger(__name__)
T = TypeVar("T")

_MOST_AT_ONCE = 10_000
_LONGEST_PAUSE = timedelta(days=7)
_LONGEST_SLEEP_MS = 60_000.0
"""While somebody waits: a long refusal is confirmed now and then, since the server may have been given new rules."""
_TRIES = 5
"""How often in a row permits may end before they could be used, until that counts as an outage."""


@dataclass(frozen=True)
class Batch:
    """Permits that were there, and how long to wait for more: nothing if all were given."""

    grants: tuple[Grant, ...]
    wait: timedelta


class Limiter:
    """Hands out permits, HIGH before LOW; a permit ends soon, and a call may not be made without one."""

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
        self._name = unit.name
        self._stopwatch = stopwatch
        self._ledger = Ledger(valkey, unit, clock or SystemClock(), self.settings, stopwatch)
        self._lines = [Line(priority, stopwatch, self._count_again) for priority in Priority]
        self._pace_ms = milliseconds(self.settings.pace)
        self._changed = asyncio.Event()
        self._dispatcher: asyncio.Task[None] | None = None
        self._lapsed_in_a_row = 0
        self._uncounted: list[Grant] = []
        """Permits whose requests left late, while the server could not be asked to count them again."""

    async def run(self, call: Callable[[], Awaitable[T]], priority: Priority = Priority.HIGH, *, units: int = 1) -> T:
        """Wait for a permit, and start the call while it is valid."""
        grant = await self.acquire(priority, units=units)
        grant.use()
        return await call()

    async def acquire(self, priority: Priority = Priority.HIGH, *, units: int = 1) -> Grant:
        """Wait for a permit that is valid at this moment; `use` it right before the call.

        Raises `ValkeyUnavailable` when the server cannot be asked: no permit, no call.
        """
        priority, units = _known(priority), self._affordable(priority, units)
        for attempt in range(_TRIES):
            grant = await self._wait_in_line(priority, Waiter(units), in_front=attempt > 0)
            if grant.is_alive:
                return grant
            grant.tally.void += 1
        raise GrantVoid(f"{_TRIES} permits of {self._name!r} ended before this process came to use them")

    async def take(self, most: int, priority: Priority = Priority.HIGH) -> Batch:
        """As many permits as there are now, up to `most`, without waiting."""
        require_positive("most", most)
        require_at_most("most", most, _MOST_AT_ONCE)
        [answer] = await self._ledger.take([Demand(_known(priority), [1] * _whole("most", most))])
        one = (priority, 1, answer.ends_at_ms, answer.granted_at_ms, self._stopwatch)
        grants = tuple(Grant(*one, on_late=self._count_again) for _ in range(answer.granted))
        return Batch(grants, timedelta(milliseconds=answer.wait_ms))

    async def pause(self, span: timedelta) -> None:
        """Give nobody a permit for so long: the upstream said "too many". The longest pause asked for counts.

        Permits already given stay valid for what is left of their short life.
        """
        require_positive("span", span.total_seconds())
        require_at_most("span", span.total_seconds(), _LONGEST_PAUSE.total_seconds())
        paused_for = await self._ledger.pause(span)
        log.warning("limiter.paused", limiter=self._name, paused_ms=milliseconds(paused_for))

    async def status(self) -> LimiterStatus:
        """What is used of every rule, who waits, and how long a pause still lasts."""
        return await self._ledger.status()

    def _affordable(self, priority: Priority, units: int) -> int:
        """More than a rule can ever give would wait for ever."""
        require_positive("units", units)
        require_at_most("units", units, self._ledger.plan.most_units[priority])
        return _whole("units", units)

    async def _wait_in_line(self, priority: Priority, waiter: Waiter, *, in_front: bool) -> Grant:
        line = self._line_of(priority)
        if sum(map(len, self._lines)) >= self.settings.most_waiting:
            raise TooManyWaiting(self._name, most=self.settings.most_waiting)
        self._join(line, waiter, in_front=in_front)
        for late in self._uncounted:
            self._join(self._line_of(late.priority), self._discarding(late), in_front=True)
        self._uncounted.clear()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            line.leave(waiter)
            self._changed.set()
            raise

    def _join(self, line: Line, waiter: Waiter, *, in_front: bool) -> None:
        line.join(waiter, in_front=in_front)
        if len(line) == 1:
            self._changed.set()
        if self._dispatcher is None or self._dispatcher.done():
            # In a context of its own: it serves all callers, and its log lines belong to none of them.
            dispatch = self._dispatch()
            self._dispatcher = asyncio.create_task(dispatch, name=f"limiter {self._name}", context=Context())

    def _line_of(self, priority: Priority) -> Line:
        return next(line for line in self._lines if line.priority is priority)

    def _count_again(self, late: Grant) -> None:
        """A request left after its permit ended, in a window in which it is not counted. Take another permit for it,
        before those of all callers that wait, and use it for nothing."""
        log.warning("limiter.sent_late", limiter=self._name, units=late.units)
        self._join(self._line_of(late.priority), self._discarding(late), in_front=True)

    def _discarding(self, late: Grant) -> Waiter:
        """A place in the line whose permit is not used. Where the server cannot be asked, the next caller brings it."""

        def ended(granted: asyncio.Future[Grant]) -> None:
            if granted.cancelled() or granted.exception() is not None:
                self._uncounted.append(late)

        waiter = Waiter(late.units, is_overdue=True)
        waiter.granted.add_done_callback(ended)
        return waiter

    async def _dispatch(self) -> None:
        """Ask the server for all who wait, until nobody does."""
        try:
            while any(self._lines):
                if await self._is_time():
                    await self._ask()
        except Exception as error:
            for line in self._lines:
                line.refuse_all(error)

    async def _is_time(self) -> bool:
        """Sleep until somebody may be asked for; False when the lines changed before."""
        self._changed.clear()
        earliest_ms = min(line.may_ask_at_ms for line in self._lines if line)
        sleep_ms = earliest_ms - self._stopwatch()
        if sleep_ms <= 0:
            return True
        try:
            async with asyncio.timeout(sleep_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return True
        return False

    async def _ask(self) -> None:
        asked_at_ms = self._stopwatch()
        # Whoever may ask soon asks now: one question instead of two.
        asking = [line for line in self._lines if line and line.may_ask_at_ms <= asked_at_ms + self._pace_ms / 2]
        answers = await self._ledger.take([line.demand() for line in asking])
        for line, answer in zip(asking, answers, strict=True):
            wait_ms = min(answer.wait_ms, _LONGEST_SLEEP_MS)
            line.may_ask_at_ms = max(asked_at_ms + self._pace_ms, self._stopwatch() + wait_ms)
            if self._is_in_time(answer):
                line.hand_out(answer)

    def _is_in_time(self, answer: Answer) -> bool:
        """Whether the permits still live. If the server is too slow time after time, it counts as away."""
        if answer.units == 0:
            return False
        if self._stopwatch() < answer.ends_at_ms:
            self._lapsed_in_a_row = 0
            return True
        self._lapsed_in_a_row += 1
        log.warning("limiter.permits_lapsed", limiter=self._name, units=answer.units)
        if self._lapsed_in_a_row >= _TRIES:
            self._lapsed_in_a_row = 0
            raise ValkeyUnavailable(f"the server's answers take longer than permits of {self._name!r} live")
        return False


def _known(priority: Priority) -> Priority:
    try:
        return Priority(priority)
    except ValueError:
        raise InvalidArgument("priority", priority, f"must be one of {', '.join(Priority)}") from None


def _whole(name: str, value: int) -> int:
    if value != int(value):
        raise InvalidArgument(name, value, "must be a whole number")
    return int(value)
