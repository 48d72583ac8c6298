"""Snapshots in this process's memory: the most recently read, up to so many bytes, each for a short time.

What is read again late in its time is to be looked up behind the reader's back, so that what is read all the time never
goes. Each at a moment of its own: those that came together would otherwise be looked up together, for ever.
"""

import random
from collections import OrderedDict
from collections.abc import Callable

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.core.clock import monotonic_ms
from tidegate.systems.snapshots.cached_snapshot import Kept

Place = tuple[str, str]
"""A kind and a key."""

_RENEWED_FROM, _RENEWED_SPREAD = 0.4, 0.4
"""Of its time: when an entry is to be looked up again, if it is read then."""


class _Entry:
    __slots__ = ("kept", "renew_at_ms", "until_ms")

    def __init__(self, kept: Kept, now_ms: float, keep_ms: float) -> None:
        drawn = random.random()  # noqa: S311 - spreads load, guards nothing
        self.kept, self.until_ms = kept, now_ms + keep_ms
        self.renew_at_ms = now_ms + (_RENEWED_FROM + _RENEWED_SPREAD * drawn) * keep_ms


class LocalCache:
    """Least recently read goes first."""

    def __init__(self, *, most_bytes: int, keep_ms: float, now_ms: Callable[[], float] = monotonic_ms) -> None:
        require_not_negative("most_bytes", most_bytes)
        require_positive("keep_ms", keep_ms)
        self._most, self._keep_ms, self._now_ms = most_bytes, keep_ms, now_ms
        self._entries: OrderedDict[Place, _Entry] = OrderedDict()
        self.bytes = 0
        """What is held now."""
        self.on_due: Callable[[Place], None] = _nothing
        """Told once of an entry that was read late in its time."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, place: Place) -> Kept | None:
        """What is held; None when nothing is, or for too long."""
        entry = self._entries.get(place)
        if entry is None:
            return None
        now_ms = self._now_ms()
        if now_ms >= entry.renew_at_ms:
            if now_ms >= entry.until_ms:
                self.forget(place)
                return None
            entry.renew_at_ms = entry.until_ms
            self.on_due(place)
        self._entries.move_to_end(place)
        return entry.kept

    def peek(self, place: Place) -> Kept | None:
        """The same, without counting as a read."""
        entry = self._entries.get(place)
        return None if entry is None or self._now_ms() >= entry.until_ms else entry.kept

    def put(self, place: Place, kept: Kept, *, keep_ms: float | None = None) -> None:
        """Hold this; what does not fit at all is not held."""
        self.forget(place)
        if kept.size > self._most:
            return
        self._entries[place] = _Entry(kept, self._now_ms(), self._keep_ms if keep_ms is None else keep_ms)
        self.bytes += kept.size
        while self.bytes > self._most:
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= oldest.kept.size

    def forget(self, place: Place) -> None:
        """Hold it no more."""
        entry = self._entries.pop(place, None)
        if entry is not None:
            self.bytes -= entry.kept.size

    def clear(self) -> None:
        """Hold nothing."""
        self._entries.clear()
        self.bytes = 0


def _nothing(_: Place) -> None:
    """Nobody looks anything up."""
