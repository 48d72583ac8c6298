"""Many processes with wrong clocks against an upstream that counts: what it saw."""

import json
import sys
from asyncio.subprocess import PIPE
from bisect import bisect_left
from dataclasses import dataclass

from tests.processes import WarmProcess, start_warm
from tidegate.primitives.limiter import LimiterSettings

SECOND_NS = 1_000_000_000
FURTHEST_OFF_S = 2.0


@dataclass(frozen=True)
class Observed:
    """When calls arrived, by the upstream's own clock, in order."""

    arrivals_ns: list[int]

    def most_in_any_window(self, window_ns: int = SECOND_NS) -> int:
        """Every arrival is tried as the beginning of a window: no other window can hold more."""
        seen = self.arrivals_ns
        return max(bisect_left(seen, start + window_ns) - n for n, start in enumerate(seen))

    def windows_above(self, limit: int, window_ns: int = SECOND_NS) -> int:
        seen = self.arrivals_ns
        return sum(bisect_left(seen, start + window_ns) - n > limit for n, start in enumerate(seen))

    @property
    def per_second(self) -> float:
        seen = self.arrivals_ns
        return (len(seen) - 1) / (seen[-1] - seen[0]) * SECOND_NS


async def _start(module: str, *args: object) -> WarmProcess:
    command = [sys.executable, "-m", f"tests.primitives.limiter.{module}", *map(str, args)]
    return await start_warm(*command, stdout=PIPE)


async def call_at_full_speed(
    url: str, unit: str, settings: LimiterSettings, *, processes: int, seconds: float
) -> Observed:
    """All processes call as fast as they may, for so long; their clocks are up to 2 s off, each by another amount."""
    upstream = await _start("counting_upstream", processes)
    assert upstream.stdout is not None
    port = int(await upstream.stdout.readline())
    offsets = [FURTHEST_OFF_S * (2 * n / max(1, processes - 1) - 1) for n in range(processes)]
    callers = [
        await _start("calling_process", url, unit, settings.model_dump_json(), port, offset, seconds)
        for offset in offsets
    ]
    try:
        assert [await caller.wait() for caller in callers] == [0] * processes
        return Observed(sorted(json.loads(await upstream.stdout.readline())))
    finally:
        for process in (upstream, *callers):
            if process.returncode is None:
                process.kill()
            await process.wait()
