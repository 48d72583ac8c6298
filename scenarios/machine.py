"""What a scenario cost, and how much of the machine others used meanwhile: where they did, times mean little."""

from contextlib import suppress

import msgspec
import psutil


class Cost(msgspec.Struct, frozen=True):
    """Of one scenario, everything that it started included."""

    cpu_s: float
    others_share: float
    """Of all CPU time that the machine had, how much others used: from 0 to 1."""


class Meter:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._ours, self._busy, self._all = _ours_s(), *_machine_s()

    def read(self) -> Cost:
        """CPU time so far."""
        ours, (busy, everything) = _ours_s() - self._ours, _machine_s()
        had = max(everything - self._all, 0.01)
        return Cost(ours, min(1.0, max(0.0, (busy - self._busy - ours) / had)))


def _ours_s() -> float:
    """CPU seconds of this process and of all that descend from it, the dead included."""
    us = psutil.Process()
    total = 0.0
    for process in (us, *us.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has just ended, and will be included in the CPU time of its parent
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _machine_s() -> tuple[float, float]:
    """CPU seconds that were used, and that there were."""
    times = psutil.cpu_times()
    everything = sum(times[:8])  # includes the time of guests
    return everything - times.idle - getattr(times, "iowait", 0.0), everything
