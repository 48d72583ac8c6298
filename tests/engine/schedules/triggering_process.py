"""`-m tests.engine.schedules.triggering_process URL VALKEY_URL SCHEDULE KEY`: trigger a schedule, print the run id."""

import asyncio
import sys

from tests.engine.schedules.harness import harness_at
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


async def main(url: str, valkey_url: str, schedule: str, key: str) -> None:
    async with harness_at(url, await Valkey.connect(valkey_url), ManualClock()) as harness:
        await harness.schedules.list_schedules()  # connected
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print((await harness.schedules.trigger(int(schedule), key)).run_id, flush=True)


asyncio.run(main(*sys.argv[1:5]))
