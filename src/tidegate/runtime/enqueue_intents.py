"""Triggers recovery when an enqueue intent expires unconfirmed."""

from collections.abc import Callable, Sequence

from tidegate.primitives.gate import EnqueueIntents


class EnqueueIntentMonitor:
    """A due source of the timekeeper; new intents wake it up."""

    def __init__(self, intents: EnqueueIntents, *, tell: Sequence[Callable[[], object]]) -> None:
        """The functions of `tell` are called when an intent expired."""
        self._intents, self._tell = intents, tuple(tell)

    async def fire(self) -> int | None:
        """Call the functions if an intent expired; return in how many ms the next one expires."""
        due, next_in_ms = await self._intents.expired()
        if due:
            for notify in self._tell:
                notify()
        return next_in_ms

    def __repr__(self) -> str:
        return f"EnqueueIntentMonitor({self._intents!r})"
