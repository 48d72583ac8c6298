"""One of many processes at the same timers: `-m tests.primitives.timers.timer_process URL schedule|fire NUMBER`."""

import asyncio
import random
import sys
from datetime import timedelta

from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.timers import Timer, Timers, TimerSettings
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected

EACH = 400
"""How many timers one process sets; a quarter of them it cancels again."""


def timers_of(valkey: Valkey) -> Timers:
    unit = valkey.unit("crowd")
    return Timers(valkey, unit, unit.key("stream"), settings=TimerSettings(promoted_at_once=7))


async def schedule(timers: Timers, number: int) -> None:
    """Print the ids that were cancelled in time: these must never fire, all others must, once."""
    mine = [f"{number}-{n}" for n in range(EACH)]
    for start in range(0, EACH, 20):
        batch = mine[start : start + 20]
        delays = [timedelta(milliseconds=random.randrange(300)) for _ in batch]
        await timers.schedule_many([Timer(each, delay) for each, delay in zip(batch, delays, strict=True)])
        for timer_id in batch[::4]:
            if await timers.cancel(timer_id):
                print(timer_id)


async def fire(timers: Timers, _number: int) -> None:
    """Fire without a pause, until killed."""
    while True:
        await timers.fire()


async def main(url: str, role: str, number: int) -> None:
    async with connected(url) as valkey:
        await (schedule if role == "schedule" else fire)(timers_of(valkey), number)


if __name__ == "__main__":
    configure_logs(level="warning")
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
