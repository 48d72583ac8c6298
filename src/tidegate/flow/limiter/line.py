"""Those who wait in this process for permits of one priority, in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from tidegate.flow.limiter.grant import Grant
from tidegate.flow.limiter.ledger import Answer, Demand
from tidegate.kernel.priority import Priority

_MOST_PER_QUESTION = 1000


@dataclass(eq=False)
class Waiter:
    """One caller, and what it asks for."""

    units: int
    granted: asyncio.Future[Grant] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Line:
    """First come, first served."""

    def __init__(self, priority: Priority, stopwatch: Callable[[], float]) -> None:
        self.priority = priority
        self.may_ask_at_ms = 0.0
        """When the server may be asked again, on the monotonic clock."""
        self._waiters: deque[Waiter] = deque()
        self._stopwatch = stopwatch

    def __len__(self) -> int:
        return len(self._waiters)

    def join(self, waiter: Waiter, *, in_front: bool) -> None:
        """Stand at the end; in front whoever was served before and could not use it."""
        if in_front:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Go away unserved; whoever was served is no longer here."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def demand(self) -> Demand:
        """What to ask the server for."""
        return Demand(self.priority, [waiter.units for waiter in islice(self._waiters, _MOST_PER_QUESTION)])

    def hand_out(self, answer: Answer) -> None:
        """Serve from the front as far as the permits reach, which may be further than asked: some may have left."""
        left = answer.units
        while self._waiters and self._waiters[0].units <= left:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():  # else it was cancelled, and had no time yet to leave
                left -= waiter.units
                waiter.granted.set_result(
                    Grant(self.priority, waiter.units, answer.ends_at_ms, answer.granted_at_ms, self._stopwatch)
                )

    def refuse_all(self, error: Exception) -> None:
        """Nobody is served; each learns why."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.granted.done():
                waiter.granted.set_exception(error)
