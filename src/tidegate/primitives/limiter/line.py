"""Those who wait in this process for permits of one priority, in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile

from tidegate.core.priority import Priority
from tidegate.primitives.limiter.grant import Grant, Tally
from tidegate.primitives.limiter.ledger import Answer, Demand

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
