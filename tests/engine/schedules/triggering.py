"""`-m tests.engine.schedules.triggering URL VALKEY_URL SCHEDULE KEY`: fire a schedule, and print which run it is."""

import asyncio
import sys

from tests.engine.schedules.clockwork import clockwork_at
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


async def main(url: str, valkey_url: str, schedule: str, key: str) -> None:
    async with clockwork_at(url, await Valkey.connect(valkey_url), ManualClock()) as works:
        await works.schedules.list_schedules()  # connected
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print((await works.schedules.trigger(int(schedule), key)).run_id, flush=True)


asyncio.run(main(*sys.argv[1:5]))
