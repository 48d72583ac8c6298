"""Questions to the server of a line, which may hang: nobody waits long for it, and not everybody waits.

A server that refuses connections says so at once. One that hangs says nothing, and without a limit everybody who asks
would wait for as long as the client tries.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import CircuitOpen, ValkeyUnavailable
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerSettings
from tidegate.runtime.waiting import patience

Result = TypeVar("Result")

AT_THE_DOOR_S = 1.0
"""So long a silence is waited out where SQL knows as well: the check at the door is quick."""
ELSEWHERE_S = 3.0
"""And so long where nobody else knows: whoever is refused has to come again."""
_REMEMBERED = CircuitBreakerSettings(window=1, failure_rate=1.0, open_for=timedelta(seconds=3), trials=1)
"""One silence is enough. Then one caller in so many seconds finds out whether it is over; the others do not wait."""


class Asking:
    """Asks the server about one room. In a cluster one room may hang, and the next one answer."""

    def __init__(self, room: str, *, elapsed_ms: Callable[[], float] = monotonic_ms) -> None:
        self._room, self._heard_at = room, 0.0
        # Only a silence counts. Whatever is told at once, also that the connection is refused, keeps nobody waiting.
        self._hanging = CircuitBreaker("waiting_room", _REMEMBERED, failures=(TimeoutError,), elapsed_ms=elapsed_ms)

    async def ask(self, step: Callable[[], Awaitable[Result]], within_s: float = ELSEWHERE_S) -> Result:
        """Do a step; raise `ValkeyUnavailable` where the server has told nobody anything for `within_s` seconds.

        As long as others are answered a caller has to wait for his turn only, however many they are. A step that was
        given up may still be done when the server goes on.
        """
        try:
            with self._hanging.attempt():
                async with patience(within_s, heard_at=lambda: self._heard_at):
                    reply = await step()
        except TimeoutError as error:
            raise ValkeyUnavailable(f"room {self._room!r}: the server said nothing for {within_s:g} s") from error
        except CircuitOpen as error:
            raise ValkeyUnavailable(f"room {self._room!r}: the server hung a moment ago") from error
        self._heard_at = asyncio.get_running_loop().time()
        return reply
