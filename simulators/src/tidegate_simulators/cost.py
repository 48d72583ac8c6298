"""What a simulator itself costs."""

import resource
import sys
import time

import msgspec


class Cost(msgspec.Struct, frozen=True):
    """What this process used since the last `clear`; all of it, if the simulator shares it with others."""

    cpu_s: float
    cpu_user_s: float
    cpu_system_s: float
    cpu_us_per_call: float | None
    """None: there was no call."""
    wall_s: float
    largest_memory_mb: float
    """Since the process began."""


class Meter:
    """Runs from its making."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)

    def read(self, calls: int) -> Cost:
        """What was used so far, for so many calls."""
        before, now = self._usage, resource.getrusage(resource.RUSAGE_SELF)
        user, system = now.ru_utime - before.ru_utime, now.ru_stime - before.ru_stime
        unit = 1 if sys.platform == "darwin" else 1_024
        return Cost(
            cpu_s=user + system,
            cpu_user_s=user,
            cpu_system_s=system,
            cpu_us_per_call=(user + system) / calls * 1e6 if calls else None,
            wall_s=time.monotonic() - self._started,
            largest_memory_mb=now.ru_maxrss * unit / 1e6,
        )
