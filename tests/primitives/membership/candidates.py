"""Processes that stand for election in the unit `house`.

`candidates.py URL race TERMS`: five of them, one after the other leader, until TERMS terms have been served.
`candidates.py URL lead`: one that leads until it is killed, under a lease of a second.
"""

import asyncio
import sys
from datetime import timedelta

from tests.waiting import until_due
from tidegate.core.ids import new_owner
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.membership import Elected, Election, Following, Membership, MembershipSettings
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected

CANDIDATES = 5
LONG_LIFE = MembershipSettings(lease=timedelta(minutes=5))
SHORT_LEASE_MS = 1000
SHORT_LIFE = MembershipSettings(lease=timedelta(milliseconds=SHORT_LEASE_MS), renew_every=timedelta(milliseconds=300))


async def serve_terms(valkey: Valkey, terms: int) -> None:
    unit, owner = valkey.unit("house"), new_owner()
    membership, election = Membership(valkey, unit, owner, settings=LONG_LIFE), Election(valkey, unit, owner)
    await membership.join()
    while await valkey.execute("LLEN", unit.key("terms")) < terms:
        match await election.stand():
            case Following():
                await election.wait_for_vacancy(0.5)
            case Elected(fence):
                assert await valkey.execute("INCR", unit.key("room")) == 1, "two leaders at once"
                await valkey.execute("RPUSH", unit.key("terms"), fence)
                assert await election.stand() == Elected(fence)
                assert await valkey.execute("DECR", unit.key("room")) == 0, "two leaders at once"
                assert await election.resign()
    await membership.leave()


async def lead(valkey: Valkey) -> None:
    unit, owner = valkey.unit("house"), new_owner()
    membership, election = Membership(valkey, unit, owner, settings=SHORT_LIFE), Election(valkey, unit, owner)
    await membership.join()
    elected = await election.stand()
    assert isinstance(elected, Elected)
    print(elected.fence, flush=True)
    while True:
        await until_due(1000 * SHORT_LIFE.renew_every.total_seconds())
        await membership.renew()


async def main(url: str, mode: str, terms: str = "0") -> None:
    async with connected(url) as valkey:
        if mode == "lead":
            await lead(valkey)
        else:
            await asyncio.gather(*(serve_terms(valkey, int(terms)) for _ in range(CANDIDATES)))


if __name__ == "__main__":
    configure_logs(level="error")
    asyncio.run(main(*sys.argv[1:]))
