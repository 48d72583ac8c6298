"""One process that calls the counting upstream as fast as the limiter lets it, with a wall clock that is wrong.

python -m tests.primitives.limiter.calling_process VALKEY_URL UNIT PORT CLOCK_OFFSET_S SECONDS
"""

import asyncio
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo

from tidegate.core import clock as kernel_clock
from tidegate.core.clock import SystemClock
from tidegate.core.errors import GrantVoid, ValkeyUnavailable
from tidegate.primitives.limiter import Limiter, LimiterSettings, Priority
from tidegate.storage.valkey import Valkey

CALLERS = {Priority.HIGH: 40, Priority.LOW: 80}


def set_wall_clock_wrong(by_s: float) -> None:
    """Whatever asks this process for the time of day is told this much too much."""
    right, right_ns = time.time, time.time_ns

    class WrongDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride]
            return datetime.now(tz) + timedelta(seconds=by_s)

    time.time = lambda: right() + by_s
    time.time_ns = lambda: right_ns() + round(by_s * 1e9)
    kernel_clock.datetime = WrongDatetime


async def call_at_full_speed(
    limiter: Limiter, priority: Priority, upstream: asyncio.StreamWriter, seconds: float
) -> None:
    async def call() -> None:
        upstream.write(b".")

    try:
        async with asyncio.timeout(seconds):
            while True:
                # On a starved machine permits end before they can be used: no permit, no call.
                with suppress(GrantVoid, ValkeyUnavailable):
                    await limiter.run(call, priority=priority)
    except TimeoutError:
        return


async def main(url: str, unit: str, settings: str, port: int, offset_s: float, seconds: float) -> None:
    set_wall_clock_wrong(offset_s)
    valkey = await Valkey.connect(url)
    limiter = Limiter(valkey, valkey.unit(unit), SystemClock(), LimiterSettings.model_validate_json(settings))
    await limiter.status()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readexactly(2)
    async with asyncio.TaskGroup() as callers:
        for priority, count in CALLERS.items():
            for _ in range(count):
                callers.create_task(call_at_full_speed(limiter, priority, writer, seconds))
    writer.close()
    await writer.wait_closed()
    await valkey.close()


if __name__ == "__main__":
    _, url, unit, settings, port, offset_s, seconds = sys.argv
    asyncio.run(main(url, unit, settings, int(port), float(offset_s), float(seconds)))
