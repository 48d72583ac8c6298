"""Somebody promised to offer what he was to commit, and was not heard of again: whoever can look for it is told."""

from collections.abc import Callable, Sequence

from tidegate.primitives.gate import EnqueueIntents


class EnqueueIntentMonitor:
    """A source of the timekeeper at whose wakeup promises ring."""

    def __init__(self, promises: EnqueueIntents, *, tell: Sequence[Callable[[], object]]) -> None:
        self._promises, self._tell = promises, tuple(tell)

    async def fire(self) -> int | None:
        """Tell everybody where a promise is due; say when the next one is."""
        due, next_in_ms = await self._promises.expired()
        if due:
            for notice in self._tell:
                notice()
        return next_in_ms

    def __repr__(self) -> str:
        return f"EnqueueIntentMonitor({self._promises!r})"
