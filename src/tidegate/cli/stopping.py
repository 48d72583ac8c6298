"""Runs commands with workers until their work is done or a signal arrives."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

from tidegate.cli.running import mute_log
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.waiting import end

_STOPPING = "Stopping: calls in progress finish within 30 s. Press Ctrl-C again to stop at once."
_AT_ONCE = "Stopping at once."
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def work_until_over(process: Supervisor, watch: Coroutine[Any, Any, None], say: Callable[[str], object]) -> bool:
    """Run a process until `watch` returns or a signal arrives; returns whether a signal did."""
    stopping = _Stopping(process, say)
    watching = asyncio.create_task(watch, name="watch the runs")
    # Also when it fails: the process must not run on without its watcher.
    watching.add_done_callback(lambda _: stopping.because_it_is_over())
    with stopping.on_signals():
        await process.run()
    if watching.done():
        watching.result()  # raises the error of `watch`
    await end(watching)
    return stopping.was_asked


class _Stopping:
    """Shuts down gracefully at the first signal, and at once at the second."""

    def __init__(self, process: Supervisor, say: Callable[[str], object]) -> None:
        self._process, self._say = process, say
        self.was_asked = False

    @contextmanager
    def on_signals(self) -> Generator[None]:
        """Handle SIGINT and SIGTERM during a block."""
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self._ask)
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    def because_it_is_over(self) -> None:
        """Stop because the work is done, unless a stop was requested: a second request would cancel at once."""
        if not self.was_asked:
            self._process.stop()

    def _ask(self) -> None:
        if self.was_asked:
            mute_log()  # after a second Ctrl-C, messages about each cancelled task are not useful
        self._say(_AT_ONCE if self.was_asked else _STOPPING)
        self.was_asked = True
        self._process.stop()
