"""Snapshots in this process's memory: the most recently read, up to so many bytes, each for a short time."""

from collections import OrderedDict
from collections.abc import Callable

from tidegate.kernel.arguments import require_not_negative, require_positive
from tidegate.kernel.clock import monotonic_ms
from tidegate.snapshots.kept import Kept

Place = tuple[str, str]
"""A kind and a key."""


class LocalCache:
    """Least recently read goes first."""

    def __init__(self, *, most_bytes: int, keep_ms: float, now_ms: Callable[[], float] = monotonic_ms) -> None:
        require_not_negative("most_bytes", most_bytes)
        require_positive("keep_ms", keep_ms)
        self._most, self._keep_ms, self._now_ms = most_bytes, keep_ms, now_ms
        self._entries: OrderedDict[Place, tuple[Kept, float]] = OrderedDict()
        self.bytes = 0
        """What is held now."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, place: Place) -> Kept | None:
        """What is held; None when nothing is, or for too long."""
        entry = self._entries.get(place)
        if entry is None:
            return None
        if self._now_ms() >= entry[1]:
            self.forget(place)
            return None
        self._entries.move_to_end(place)
        return entry[0]

    def put(self, place: Place, kept: Kept, *, keep_ms: float | None = None) -> None:
        """Hold this; what does not fit at all is not held."""
        self.forget(place)
        if kept.size > self._most:
            return
        self._entries[place] = (kept, self._now_ms() + (self._keep_ms if keep_ms is None else keep_ms))
        self.bytes += kept.size
        while self.bytes > self._most:
            _, (oldest, _) = self._entries.popitem(last=False)
            self.bytes -= oldest.size

    def forget(self, place: Place) -> None:
        """Hold it no more."""
        entry = self._entries.pop(place, None)
        if entry is not None:
            self.bytes -= entry[0].size

    def clear(self) -> None:
        """Hold nothing."""
        self._entries.clear()
        self.bytes = 0
