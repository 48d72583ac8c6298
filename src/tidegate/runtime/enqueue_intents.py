"""Somebody promised to offer what he was to commit, and was not heard of again: whoever can look for it is told."""

from collections.abc import Callable, Sequence

from tidegate.primitives.gate import Promises


class Promised:
    """A source of the timekeeper at whose doorbell promises ring."""

    def __init__(self, promises: Promises, *, tell: Sequence[Callable[[], object]]) -> None:
        self._promises, self._tell = promises, tuple(tell)

    async def fire(self) -> int | None:
        """Tell everybody where a promise is due; say when the next one is."""
        due, next_in_ms = await self._promises.broken()
        if due:
            for notice in self._tell:
                notice()
        return next_in_ms

    def __repr__(self) -> str:
        return f"Promised({self._promises!r})"
