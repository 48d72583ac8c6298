"""How a command with workers is stopped: in good order at the first signal, at once at the second."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tidegate.cli.running import mute_log
from tidegate.runtime.supervisor import Supervisor

_STOPPING = "Stopping: calls under way are finished, which takes 30 s at most. Ctrl-C once more stops at once."
_AT_ONCE = "Stopping at once."
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Stops a process in good order at the first signal, and at once at the second."""

    def __init__(self, process: Supervisor, say: Callable[[str], object]) -> None:
        self._process, self._say = process, say
        self.was_asked = False

    @contextmanager
    def on_signals(self) -> Generator[None]:
        """For the length of a block, SIGINT and SIGTERM ask."""
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self._ask)
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    def because_it_is_over(self) -> None:
        """Not where somebody asked before: twice would mean at once."""
        if not self.was_asked:
            self._process.stop()

    def _ask(self) -> None:
        if self.was_asked:
            mute_log()  # who wants to leave at once need not read of everything that is cut short
        self._say(_AT_ONCE if self.was_asked else _STOPPING)
        self.was_asked = True
        self._process.stop()
