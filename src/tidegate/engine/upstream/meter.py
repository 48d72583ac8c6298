"""Measures the peak rate of sent requests per second, which an alert compares with the limit.

A counter that is scraped every 15 seconds does not show a burst of one second. The peak is therefore computed here from
all requests that were sent, independent of their permits.
"""

from collections import deque
from collections.abc import Callable

from tidegate.core.clock import monotonic_ms
from tidegate.core.telemetry import metrics

_SLOT_MS = 100
_SECOND = 1000 // _SLOT_MS
_MINUTE = 60 * _SECOND


class SentMeter:
    """Counts requests in slots of 100 ms, for a minute."""

    def __init__(self, stopwatch: Callable[[], float] = monotonic_ms) -> None:
        self._stopwatch = stopwatch
        self._slots: deque[list[int]] = deque()

    def note(self) -> None:
        """Count a request that is sent now."""
        slot = int(self._stopwatch()) // _SLOT_MS
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1][1] += 1
        else:
            self._forget(slot)
            self._slots.append([slot, 1])

    def peak(self) -> int:
        """The most requests that left within one second of the last minute."""
        self._forget(int(self._stopwatch()) // _SLOT_MS)
        most = total = 0
        # A window of one second moves over the slots; `total` is its sum.
        within: deque[list[int]] = deque()
        for slot in self._slots:
            within.append(slot)
            total += slot[1]
            while within[0][0] <= slot[0] - _SECOND:
                total -= within.popleft()[1]
            most = max(most, total)
        return most

    def _forget(self, now: int) -> None:
        while self._slots and self._slots[0][0] <= now - _MINUTE:
            self._slots.popleft()


_meters: dict[str, SentMeter] = {}


def meter_of(client: str) -> SentMeter:
    """The meter that all clients of this name share in this process; its gauge is computed at scrape time."""
    if client not in _meters:
        _meters[client] = meter = SentMeter()
        metrics.UPSTREAM_REQUESTS_PEAK.labels(client).set_function(meter.peak)
    return _meters[client]
