"""How late timers are: 10,000 random due times within ten seconds, one keeper, one reader.

`promoted` is measured by the server alone: the time in the id of the message minus the due time. `received` ends when a
reader in this process receives the message, by this machine's clock.
"""

import asyncio
import random
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.figures import Figure, Section
from tidegate.core.clock import SystemClock
from tidegate.primitives.timers import Timer, Timers
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.storage.valkey.embedded import EmbeddedServer

TIMERS = 10_000
OVER = timedelta(seconds=10)
LEAD = timedelta(seconds=1)
"""Between the scheduling and the first due time."""


@dataclass(frozen=True)
class Lateness:
    """In ms; `early` counts those that came before their time."""

    p50: float
    p99: float
    worst: float
    early: int

    @classmethod
    def of(cls, values: list[float]) -> "Lateness":
        ordered = sorted(values)
        at = [ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99)]
        return cls(at[0], at[1], ordered[-1], sum(value < 0 for value in ordered))

    def in_words(self) -> str:
        return f"p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms, worst {self.worst:.1f} ms"


@dataclass(frozen=True)
class TimersFigures:
    """The measured delays."""

    timers: int
    promoted: Lateness
    received: Lateness


async def measure() -> Section:
    """Start a server of its own, and measure on it."""
    with tempfile.TemporaryDirectory() as folder:
        async with await EmbeddedServer.start(Path(folder)) as server, connected(server.url) as valkey:
            found = await measure_on(valkey)
    late = found.promoted
    figures = [
        Figure(f"due → promoted, {found.timers:,} timers", late.in_words(), "p99 ≤ 5 ms", late.p99 <= 5),
        Figure("due → received by the reader", found.received.in_words()),
        Figure("promoted early", str(late.early), "0", late.early == 0),
    ]
    return Section("Timers", figures, f"Random due times within {OVER.total_seconds():.0f} s, one keeper, one reader.")


async def measure_on(valkey: Valkey) -> TimersFigures:
    unit = valkey.unit("bench-timers")
    timers = Timers(valkey, unit, unit.key("stream"))
    stopping = asyncio.Event()
    keeping = asyncio.create_task(Timekeeper(timers.wakeup, [timers]).run(stopping))
    start = SystemClock().now() + LEAD
    await timers.schedule_many([Timer(f"t{n}", start + OVER * random.random()) for n in range(TIMERS)])
    figures = await _read(valkey, timers)
    stopping.set()
    await keeping
    return figures


async def _read(valkey: Valkey, timers: Timers) -> TimersFigures:
    promoted: list[float] = []
    received: list[float] = []
    last: bytes = b"0"
    while len(promoted) < TIMERS:
        command: tuple[Any, ...] = ("XREAD", "BLOCK", 30_000, "STREAMS", timers.stream, last)
        reply = await valkey.execute_blocking(*command, within_s=30)
        now_ms = time.time() * 1000
        for entry_id, fields in reply[timers.stream.encode()]:
            due_ms = int(fields[b"due_ms"])
            promoted.append(int(entry_id.split(b"-")[0]) - due_ms)
            received.append(now_ms - due_ms)
            last = entry_id
    return TimersFigures(len(promoted), Lateness.of(promoted), Lateness.of(received))
