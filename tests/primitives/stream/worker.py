"""A process that reads the stream `jobs` of the unit `work`: `worker.py URL OWNER drain TOTAL | hold COUNT`.

`drain` notes each message it handles in the list `handled`, and ends when that has TOTAL entries.
`hold` lives under a lease of a second, reads COUNT messages, says so, and keeps them until it is killed.
"""

import asyncio
import sys
from datetime import timedelta

from tests.waiting import until_due
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.membership import Membership, MembershipSettings
from tidegate.primitives.stream import Stream
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected

SHORT_LEASE_MS = 1000
SHORT_LIFE = MembershipSettings(lease=timedelta(milliseconds=SHORT_LEASE_MS), renew_every=timedelta(milliseconds=300))


async def drain(valkey: Valkey, owner: str, total: int) -> None:
    unit = valkey.unit("work")
    consumer = Stream(valkey, unit, "jobs").consumer(owner)
    handled = 0
    while handled < total:
        messages = await consumer.read(7, 0.1)
        if messages:
            await valkey.execute("RPUSH", unit.key("handled"), *(message.fields[b"n"] for message in messages))
            await consumer.ack(message.id for message in messages)
        handled = await valkey.execute("LLEN", unit.key("handled"))


async def hold(valkey: Valkey, owner: str, count: int) -> None:
    unit = valkey.unit("work")
    membership = Membership(valkey, unit, owner, settings=SHORT_LIFE)
    await membership.join()
    messages = await Stream(valkey, unit, "jobs").consumer(owner).read(count, 10)
    print("holds", len(messages), flush=True)
    while True:
        await until_due(1000 * SHORT_LIFE.renew_every.total_seconds())
        await membership.renew()


async def main(url: str, owner: str, mode: str, number: str) -> None:
    async with connected(url) as valkey:
        await {"drain": drain, "hold": hold}[mode](valkey, owner, int(number))


if __name__ == "__main__":
    configure_logs(level="error")
    asyncio.run(main(*sys.argv[1:]))
