"""A process that increments a counter and sends a signal, repeatedly: `signalling_process.py URL TIMES`."""

import asyncio
import sys

from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.valkey.connection import connected


async def main(url: str, times: int) -> None:
    async with connected(url) as valkey:
        unit = valkey.unit("bell")
        bell = Wakeup(valkey, unit.key("wake"))
        for _ in range(times):
            await valkey.execute("INCR", unit.key("count"))
            await bell.notify()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
