"""A server that was away may have come back without its last moments: whoever can repair that is told.

One that lost everything has lost the leader's lease too, and is rebuilt by whoever leads next. One that lost its last
second, or came back with an old snapshot, still knows every lease, and would be believed.
"""

from collections.abc import Callable, Sequence

from tidegate.storage.valkey import Valkey


class ValkeyRestartDetector:
    """A source of the timekeeper, whose wait at the wakeup ends when the server goes."""

    def __init__(self, valkey: Valkey, *, tell: Sequence[Callable[[], object]]) -> None:
        self._valkey, self._tell = valkey, tuple(tell)
        self._known = valkey.losses

    async def fire(self) -> int | None:
        """Where the server was away since the last time and is back, tell everybody."""
        losses = self._valkey.losses
        if losses != self._known:
            await self._valkey.execute("PING")
            self._known = losses
            for notice in self._tell:
                notice()
        return None

    def __repr__(self) -> str:
        return f"ValkeyRestartDetector({self._valkey.address})"
