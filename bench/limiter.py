"""The limiter at full speed: how much it lets through, how exactly, and what that costs the server.

python -m bench limiter
"""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.primitives.limiter.exactness import call_at_full_speed

from bench.figures import Figure, Section
from tidegate.core.ids import new_id
from tidegate.primitives.limiter import Limit, Limiter, LimiterSettings
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.storage.valkey.embedded import EmbeddedServer

PROCESSES = 8
SECONDS = 30.0
ONE_PROCESS_SECONDS = 10.0
CALLERS = 300
BATCH = 25
ROUNDS = 2000


@dataclass(frozen=True)
class LimiterFigures:
    """What one run measured. The rules are the default ones: 450/s sustained, never more than 500 in a second."""

    calls_per_s: float
    """Questions to the server from one process that uses every permit."""
    permits_per_s: float
    """Permits used by that process."""
    crowd_calls_per_s: float
    """Questions from eight processes together, each with HIGH and LOW callers."""
    crowd_permits_per_s: float
    """Calls that arrived from the eight, by the upstream's clock."""
    worst_window: int
    """The most calls that arrived within any second."""
    windows_above: int
    """Seconds, beginning at any arrival, with more than 500 calls."""
    server_us_per_grant: float
    """The server's time for one permit, taken in batches of 25."""


async def measure() -> Section:
    """One process, then several."""
    found = await measure_for(SECONDS)
    figures = [
        Figure(
            "one process, permits used", f"{found.permits_per_s:.1f}/s", "≥ 98 % of 450/s", found.permits_per_s >= 441
        ),
        Figure("one process, server calls", f"{found.calls_per_s:.1f}/s", "≤ 20/s", found.calls_per_s <= 20),
        Figure("8 processes, permits used", f"{found.crowd_permits_per_s:.1f}/s"),
        Figure("8 processes, server calls together", f"{found.crowd_calls_per_s:.1f}/s"),
        Figure("most calls in any second", str(found.worst_window), "≤ 500", found.worst_window <= 500),
        Figure("windows above the limit", str(found.windows_above), "0", found.windows_above == 0),
        Figure("server time per permit", f"{found.server_us_per_grant:.1f} µs"),
    ]
    note = f"450/s sustained, never more than 500 in any second; 8 processes with clocks ±2 s for {SECONDS:.0f} s."
    return Section("Limiter", figures, note)


async def measure_for(seconds: float) -> LimiterFigures:
    """Run all parts on an embedded server of their own; takes about a minute."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with await EmbeddedServer.start(Path(folder)) as server, connected(server.url) as valkey:
            calls_per_s, permits_per_s = await _one_process(valkey, min(seconds, ONE_PROCESS_SECONDS))
            unit = valkey.unit(new_id())
            await Limiter(valkey, unit).status()  # the quiet time passes while the processes start
            before = await _script_calls(valkey)
            observed = await call_at_full_speed(
                server.url, unit.name, LimiterSettings(), processes=PROCESSES, seconds=seconds
            )
            calls = await _script_calls(valkey) - before
            return LimiterFigures(
                calls_per_s=calls_per_s,
                permits_per_s=permits_per_s,
                crowd_calls_per_s=calls / seconds,
                crowd_permits_per_s=observed.per_second,
                worst_window=observed.most_in_any_window(),
                windows_above=observed.windows_above(500),
                server_us_per_grant=await _server_us_per_grant(valkey),
            )


async def _one_process(valkey: Valkey, seconds: float) -> tuple[float, float]:
    """Questions and permits per second, from the first permit on."""
    limiter = Limiter(valkey, valkey.unit(new_id()))
    await limiter.acquire()
    used, calls_before, begin = 0, await _script_calls(valkey), time.monotonic()

    async def caller() -> None:
        nonlocal used
        while time.monotonic() < begin + seconds:
            (await limiter.acquire()).use()
            used += 1

    await asyncio.gather(*[caller() for _ in range(CALLERS)])
    took = time.monotonic() - begin
    return (await _script_calls(valkey) - calls_before) / took, used / took


async def _server_us_per_grant(valkey: Valkey) -> float:
    rules = (Limit(name=name, permits=10**9, window=timedelta(seconds=1)) for name in ("one", "two", "three"))
    settings = LimiterSettings(limits=tuple(rules), quiet_start=timedelta(0), rates=())
    limiter = Limiter(valkey, valkey.unit(new_id()), settings=settings)
    before = await _script_us(valkey)
    for _ in range(ROUNDS):
        await limiter.take(BATCH)
    return (await _script_us(valkey) - before) / (ROUNDS * BATCH)


async def _script_calls(valkey: Valkey) -> int:
    return (await valkey.execute("INFO", "commandstats")).get("cmdstat_evalsha", {"calls": 0})["calls"]


async def _script_us(valkey: Valkey) -> int:
    return (await valkey.execute("INFO", "commandstats")).get("cmdstat_evalsha", {"usec": 0})["usec"]
