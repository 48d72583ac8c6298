"""Five contenders in one process: `contenders.py URL TERMS`. Each prints the fences under which it held the lease.

Whoever holds it enters a room in which nobody else may be; now and then one takes it and vanishes.
"""

import asyncio
import random
import sys
from datetime import timedelta

from tests.waiting import random_moment
from tidegate.core.errors import LeaseTaken
from tidegate.core.ids import new_owner
from tidegate.core.telemetry.logs import configure
from tidegate.primitives.lease import Lease
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected

CONTENDERS = 5
LONG, SHORT = timedelta(seconds=60), timedelta(milliseconds=5)


async def contend(valkey: Valkey, terms: int) -> None:
    unit = valkey.unit("house")
    room = unit.key("room")
    while terms:
        lease = Lease(valkey, unit, "room", new_owner())
        vanishes = random.random() < 0.2
        try:
            held = await lease.acquire(SHORT if vanishes else LONG)
        except LeaseTaken:
            await random_moment(0.005)
            continue
        terms -= 1
        print(held.fence, flush=True)
        if vanishes:
            continue
        assert await valkey.execute("INCR", room) == 1, "two holders at once"
        await valkey.execute("RPUSH", unit.key("fences"), held.fence)
        assert (await lease.renew(held)).fence == held.fence
        assert await valkey.execute("DECR", room) == 0, "two holders at once"
        assert await lease.release(held)


async def main(url: str, terms: str) -> None:
    async with connected(url) as valkey:
        await asyncio.gather(*(contend(valkey, int(terms)) for _ in range(CONTENDERS)))


if __name__ == "__main__":
    configure(level="error")
    asyncio.run(main(*sys.argv[1:]))
