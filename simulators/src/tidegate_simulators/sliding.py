"""How many there were in the last day: exactly, in any window of that length, in four bytes each."""

from array import array
from collections import deque

from tidegate_simulators.validation import require_positive

_CHUNK = 65_536
_LONGEST_OFFSET_US = 2**32 - 1


class SlidingLog:
    """The times of the last `length_us`, in microseconds. They must be added in order.

    Two moments that are `length_us` apart are not in one window: it is open at its beginning and closed at its end.
    """

    def __init__(self, length_us: int) -> None:
        require_positive("length_us", length_us)
        self._length_us = length_us
        self._chunks: deque[tuple[int, array[int]]] = deque()
        """Each with the moment that its offsets count from."""
        self._base_us, self._offsets = 0, array("I")
        """The last chunk."""
        self._gone = 0
        """Entries of the first chunk that have left the window."""
        self.size = 0
        """The count in the window that ended at the last call."""
        self.leaves_us = 0
        """When the oldest of these leaves the window, if there is any."""

    def add(self, at_us: int) -> int:
        """Add a time that is not before any other; returns the count in the window that ends with it."""
        if self.size and self.leaves_us <= at_us:
            self._drop(at_us - self._length_us)
        if not self.size:
            self.leaves_us = at_us + self._length_us
        if not self._chunks or len(self._offsets) >= _CHUNK or at_us - self._base_us > _LONGEST_OFFSET_US:
            self._base_us, self._offsets = at_us, array("I")
            self._chunks.append((at_us, self._offsets))
        self._offsets.append(at_us - self._base_us)
        self.size += 1
        return self.size

    def count(self, at_us: int) -> int:
        """How many there are in the window that ends now."""
        if self.size and self.leaves_us <= at_us:
            self._drop(at_us - self._length_us)
        return self.size

    def _drop(self, upto_us: int) -> None:
        """Drop times that are not after this one."""
        chunks = self._chunks
        while chunks:
            base, offsets = chunks[0]
            gone, end = self._gone, len(offsets)
            while gone < end and base + offsets[gone] <= upto_us:
                gone += 1
            self.size -= gone - self._gone
            self._gone = gone
            if gone < end:
                self.leaves_us = base + offsets[gone] + self._length_us
                return
            chunks.popleft()
            self._gone = 0
