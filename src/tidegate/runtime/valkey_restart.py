"""Triggers recovery when Valkey was unavailable and is back, since it may have lost its last writes.

A server that lost everything has lost the leader's lease too, and the next leader rebuilds its data. A server that lost
its last second, or was restored from an old snapshot, still has all leases, so nothing else would notice.
"""

from collections.abc import Callable, Sequence

from tidegate.storage.valkey import Valkey


class ValkeyRestartDetector:
    """A due source of the timekeeper. Its wait for a wake-up ends when the connection breaks."""

    def __init__(self, valkey: Valkey, *, tell: Sequence[Callable[[], object]]) -> None:
        """The functions of `tell` are called when the server is back."""
        self._valkey, self._tell = valkey, tuple(tell)
        self._known = valkey.losses

    async def fire(self) -> int | None:
        """Call the functions if the server was unavailable since the last call and is back."""
        losses = self._valkey.losses
        if losses != self._known:
            # Raises while the server is unavailable, and `_known` stays: the call is repeated until it is back.
            await self._valkey.execute("PING")
            self._known = losses
            for notify in self._tell:
                notify()
        return None

    def __repr__(self) -> str:
        return f"ValkeyRestartDetector({self._valkey.address})"
