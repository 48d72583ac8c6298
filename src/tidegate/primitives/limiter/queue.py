"""Callers of one process that wait for permits of one key, and the task that asks the server for all of them.

The server is asked as long as callers wait, not more often than `pace`, and not before the time that it named.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass, field
from itertools import islice, takewhile

from tidegate.core.clock import milliseconds
from tidegate.core.errors import GrantVoid, TooManyWaiting, ValkeyUnavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.limiter.grant import Grant, Tally
from tidegate.primitives.limiter.ledger import Answer, Demand, Ledger
from tidegate.primitives.limiter.settings import LimiterSettings

log = get_logger(__name__)

_LONGEST_SLEEP_MS = 60_000.0
"""A long refusal is confirmed now and then while callers wait, since the server may have been given new rules."""
_TRIES = 5
"""How often in a row permits may end before they could be used, until that counts as an outage."""
_MOST_PER_QUESTION = 1000


@dataclass(eq=False)
class Waiter:
    """One caller, and what it asks for."""

    units: int
    is_overdue: bool = False
    """Whether the request has left already: its permit comes before those of all others."""
    granted: asyncio.Future[Grant] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Line:
    """First come, first served."""

    def __init__(
        self, priority: Priority, stopwatch: Callable[[], float], on_late: Callable[[Grant], None] | None = None
    ) -> None:
        self.priority, self._on_late = priority, on_late
        self.may_ask_at_ms = 0.0
        """When the server may be asked again, on the monotonic clock."""
        self._waiters: deque[Waiter] = deque()
        self._stopwatch = stopwatch
        self._most, self._last = _MOST_PER_QUESTION, Tally()

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def waiting(self) -> Iterator[Waiter]:
        """Those who wait, the first at the head."""
        return iter(self._waiters)

    def join(self, waiter: Waiter, *, in_front: bool) -> None:
        """Stand at the end; in front whoever was served before and could not use it."""
        if waiter.is_overdue:
            self._waiters.appendleft(waiter)
        elif in_front:
            overdue = sum(1 for _ in takewhile(lambda each: each.is_overdue, self._waiters))
            self._waiters.insert(overdue, waiter)
        else:
            self._waiters.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Go away unserved; whoever was served is no longer here."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def demand(self) -> Demand:
        """What to ask the server for.

        Permits that end unused are lost to all processes. So a process that is short of CPU asks for no more than it
        used in time of the last ones, and for twice as many when it used them all.
        """
        if self._last.void:
            self._most = max(1, self._last.used)
        elif self._last.used >= self._most:
            self._most = min(2 * self._most, _MOST_PER_QUESTION)
        self._last = Tally()
        return Demand(self.priority, [waiter.units for waiter in islice(self._waiters, self._most)])

    def hand_out(self, answer: Answer) -> None:
        """Serve from the front as far as the permits reach, which may be further than asked: some may have left."""
        left, self._last = answer.units, Tally()
        while self._waiters and self._waiters[0].units <= left:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():  # else it was cancelled, and had no time yet to leave
                left -= waiter.units
                grant = Grant(
                    self.priority,
                    waiter.units,
                    answer.ends_at_ms,
                    answer.granted_at_ms,
                    self._stopwatch,
                    self._last,
                    self._on_late,
                )
                waiter.granted.set_result(grant)

    def refuse_all(self, error: Exception) -> None:
        """Nobody is served; each learns why."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():
                waiter.granted.set_exception(error)


@dataclass(eq=False)
class WaitingCount:
    """How many callers wait, over all keys of a limiter in this process."""

    callers: int = 0


class PermitQueue:
    """Permits of one key, HIGH before LOW, in the order of the callers."""

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        settings: LimiterSettings,
        stopwatch: Callable[[], float],
        waiting: WaitingCount,
    ) -> None:
        self._name, self.ledger, self._stopwatch, self._waiting = name, ledger, stopwatch, waiting
        self._most_waiting, self._pace_ms = settings.most_waiting, milliseconds(settings.pace)
        self._lines = [Line(priority, stopwatch, self.count_again) for priority in Priority]
        self._changed = asyncio.Event()
        self._dispatcher: asyncio.Task[None] | None = None
        self._lapsed_in_a_row = 0
        self._uncounted: list[Grant] = []
        """Permits whose requests left late, while the server could not be asked to count them again."""

    @property
    def is_idle(self) -> bool:
        """Whether no caller waits, no request is still to be counted, and the task that asks the server has ended."""
        is_asking = self._dispatcher is not None and not self._dispatcher.done()
        return not any(self._lines) and not self._uncounted and not is_asking

    async def acquire(self, priority: Priority, units: int) -> Grant:
        """Wait for a permit that is valid at this moment."""
        for attempt in range(_TRIES):
            grant = await self._wait_in_line(priority, Waiter(units), in_front=attempt > 0)
            if grant.is_alive:
                return grant
            grant.tally.void += 1
        raise GrantVoid(f"{_TRIES} permits of {self._name!r} ended before this process came to use them")

    async def _wait_in_line(self, priority: Priority, waiter: Waiter, *, in_front: bool) -> Grant:
        line = self._line_of(priority)
        if self._waiting.callers >= self._most_waiting:
            raise TooManyWaiting(self._name, most=self._most_waiting)
        self._join(line, waiter, in_front=in_front)
        for late in self._uncounted:
            self._join(self._line_of(late.priority), self._discarding(late), in_front=True)
        self._uncounted.clear()
        self._waiting.callers += 1
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            line.leave(waiter)
            self._changed.set()
            raise
        finally:
            self._waiting.callers -= 1

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

    def count_again(self, late: Grant) -> None:
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
        """Ask the server for all callers that wait, until there are none."""
        try:
            while any(self._lines):
                if await self._is_time():
                    await self._ask()
        except Exception as error:
            for line in self._lines:
                line.refuse_all(error)

    async def _is_time(self) -> bool:
        """Sleep until the server may be asked; False when the lines changed before."""
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
        # A line that may ask soon asks now: one request instead of two.
        asking = [line for line in self._lines if line and line.may_ask_at_ms <= asked_at_ms + self._pace_ms / 2]
        answers = await self.ledger.take([line.demand() for line in asking])
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
