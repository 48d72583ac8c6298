"""An event loop whose clock stands still while anything is running, and jumps to the next timer when nothing is.

What happens then depends on the order of timers alone, and not on how fast the machine is. For code that waits for
timers, events and other tasks only: sockets, threads and processes live in real time.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Instead of waiting, moves the clock on by as long as it was to wait."""

    def __init__(self, move: Callable[[float], None]) -> None:
        super().__init__()
        self._move = move

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits, and no timer is set: nothing would ever happen")
        self._move(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock begins at 0."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Selector(self._move))

    def time(self) -> float:
        return self._now_s

    def _move(self, seconds: float) -> None:
        self._now_s += max(0.0, seconds)


def run_virtually(scenario: Callable[[Callable[[], float]], Coroutine[Any, Any, T]]) -> T:
    """Run a scenario, which is given a function that tells the seconds since it began."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(scenario(loop.time))
