"""Callers of one process that wait for permits of one key, and the task that requests permits for all of them.

While callers wait, the server is asked at most once per `pace`, and not before the time that its last answer named.
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
from tidegate.primitives.limiter.ledger import Demand, Grant, GrantedRequests, Ledger, Tally
from tidegate.primitives.limiter.settings import LimiterSettings

log = get_logger(__name__)

_LONGEST_SLEEP_MS = 60_000.0
"""A long refusal is confirmed at this interval while callers wait, because the rules may have changed."""
_TRIES = 5
"""How often in a row permits may expire unused before it counts as an outage."""
_MOST_PER_QUESTION = 1000


@dataclass(eq=False)
class Waiter:
    """One caller and the units that it requests."""

    units: int
    is_overdue: bool = False
    """Whether the request was sent already; its permit then comes first."""
    granted: asyncio.Future[Grant] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class CallerQueue:
    """Waiting callers of one priority, served in the order of arrival."""

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
        """Waiting callers, the first one first."""
        return iter(self._waiters)

    def join(self, waiter: Waiter, *, in_front: bool) -> None:
        """Add a caller at the end, or in front if its last permit expired before it could be used."""
        if waiter.is_overdue:
            self._waiters.appendleft(waiter)
        elif in_front:
            # Behind requests that were sent already: these count in the current window whether they have a permit or
            # not.
            overdue = sum(1 for _ in takewhile(lambda each: each.is_overdue, self._waiters))
            self._waiters.insert(overdue, waiter)
        else:
            self._waiters.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a caller that was not served; no effect for others."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def demand(self) -> Demand:
        """The units to request from the server.

        Permits that expire unused are lost for all processes. So a process that is short of CPU requests only as many
        as it used in time of the last ones, and twice as many after it used all of them.
        """
        if self._last.void:
            self._most = max(1, self._last.used)
        elif self._last.used >= self._most:
            self._most = min(2 * self._most, _MOST_PER_QUESTION)
        self._last = Tally()
        return Demand(self.priority, [waiter.units for waiter in islice(self._waiters, self._most)])

    def hand_out(self, answer: GrantedRequests) -> None:
        """Serve callers from the front as far as the permits reach; callers may have left since the request."""
        # Permits of this answer share a new tally. Those of earlier answers keep theirs.
        left, self._last = answer.units, Tally()
        # The loop ends at the first request that does not fit: a smaller one does not overtake it.
        while self._waiters and self._waiters[0].units <= left:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():  # otherwise it was cancelled and has not been removed yet
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
        """Raise `error` in all waiting callers."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():
                waiter.granted.set_exception(error)


@dataclass(eq=False)
class WaitingCount:
    """Number of waiting callers of all keys of a limiter in this process."""

    callers: int = 0


class PermitQueue:
    """Grants permits of one key, HIGH before LOW, in the order of the callers."""

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
        self._lines = [CallerQueue(priority, stopwatch, self.count_again) for priority in Priority]
        self._changed = asyncio.Event()
        self._dispatcher: asyncio.Task[None] | None = None
        self._lapsed_in_a_row = 0
        self._uncounted: list[Grant] = []
        """Permits of requests that were sent late and are not counted again yet: the server was unavailable."""

    @property
    def is_idle(self) -> bool:
        """Whether no caller waits, no request is left to count, and the requesting task has ended."""
        is_asking = self._dispatcher is not None and not self._dispatcher.done()
        return not any(self._lines) and not self._uncounted and not is_asking

    async def acquire(self, priority: Priority, units: int) -> Grant:
        """Wait for a valid permit."""
        for attempt in range(_TRIES):
            # A caller that got its permit too late waits at the front the next time.
            grant = await self._wait_in_line(priority, Waiter(units), in_front=attempt > 0)
            if grant.is_alive:
                return grant
            # The next request then asks for fewer permits (`CallerQueue.demand`).
            grant.tally.void += 1
        raise GrantVoid(f"{_TRIES} permits of {self._name!r} expired before this process used them")

    async def _wait_in_line(self, priority: Priority, waiter: Waiter, *, in_front: bool) -> Grant:
        line = self._line_of(priority)
        if self._waiting.callers >= self._most_waiting:
            raise TooManyWaiting(self._name, most=self._most_waiting)
        self._join(line, waiter, in_front=in_front)
        # Requests that were sent while the server was unavailable are counted before this one.
        for late in self._uncounted:
            self._join(self._line_of(late.priority), self._discarding(late), in_front=True)
        self._uncounted.clear()
        self._waiting.callers += 1
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            line.leave(waiter)
            # The task may sleep until a time that only this caller waited for.
            self._changed.set()
            raise
        finally:
            self._waiting.callers -= 1

    def _join(self, line: CallerQueue, waiter: Waiter, *, in_front: bool) -> None:
        line.join(waiter, in_front=in_front)
        # The line was empty, so the task does not know when it may ask for this line.
        if len(line) == 1:
            self._changed.set()
        if self._dispatcher is None or self._dispatcher.done():
            # In its own context: the task serves all callers, so its log lines must not carry the fields of one.
            dispatch = self._dispatch()
            self._dispatcher = asyncio.create_task(dispatch, name=f"limiter {self._name}", context=Context())

    def _line_of(self, priority: Priority) -> CallerQueue:
        return next(line for line in self._lines if line.priority is priority)

    def count_again(self, late: Grant) -> None:
        """Take another permit for a request that was sent after its permit expired, and thus in a window that does not
        count it. The permit is taken before those of all waiting callers, and discarded."""
        log.warning("limiter.sent_late", limiter=self._name, units=late.units)
        self._join(self._line_of(late.priority), self._discarding(late), in_front=True)

    def _discarding(self, late: Grant) -> Waiter:
        """A waiter that discards its permit. If the server is unavailable, the next caller requests it again."""

        def ended(granted: asyncio.Future[Grant]) -> None:
            if granted.cancelled() or granted.exception() is not None:
                self._uncounted.append(late)

        waiter = Waiter(late.units, is_overdue=True)
        waiter.granted.add_done_callback(ended)
        return waiter

    async def _dispatch(self) -> None:
        """Request permits for all waiting callers until there are none."""
        try:
            while any(self._lines):
                if await self._is_time():
                    await self._ask()
        except Exception as error:
            # The task ends with this error, so no caller may go on waiting for it.
            for line in self._lines:
                line.refuse_all(error)

    async def _is_time(self) -> bool:
        """Sleep until the server may be asked; False when the lines changed before."""
        # Cleared before the lines are read, so that a later change is not missed.
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
        # A priority that may ask soon is included now: one request instead of two.
        asking = [line for line in self._lines if line and line.may_ask_at_ms <= asked_at_ms + self._pace_ms / 2]
        # `_lines` are in the order of the priorities, as the script requires.
        answers = await self.ledger.take([line.demand() for line in asking])
        for line, answer in zip(asking, answers, strict=True):
            wait_ms = min(answer.wait_ms, _LONGEST_SLEEP_MS)
            # The pace counts from the request; the wait that the server named counts from its answer.
            line.may_ask_at_ms = max(asked_at_ms + self._pace_ms, self._stopwatch() + wait_ms)
            if self._is_in_time(answer):
                line.hand_out(answer)

    def _is_in_time(self, answer: GrantedRequests) -> bool:
        """Whether the permits are still valid. A server that is too slow repeatedly counts as unavailable."""
        if answer.units == 0:
            return False
        if self._stopwatch() < answer.ends_at_ms:
            self._lapsed_in_a_row = 0
            return True
        self._lapsed_in_a_row += 1
        log.warning("limiter.permits_lapsed", limiter=self._name, units=answer.units)
        if self._lapsed_in_a_row >= _TRIES:
            self._lapsed_in_a_row = 0
            raise ValkeyUnavailable(f"the server answers later than permits of {self._name!r} are valid")
        return False
