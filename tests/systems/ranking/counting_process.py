"""One process of a crowd that counts the same events, each in an order of its own.

python -m tests.systems.ranking.counting_process DATABASE VALKEY SEED
"""

import asyncio
import random
import sys

from tests.systems.ranking.harness import NOW, SEOUL, count, event
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database
from tidegate.storage.valkey.connection import connected
from tidegate.systems.ranking.model import CountedEvent
from tidegate.systems.ranking.service import Ranking
from tidegate.systems.ranking.settings import RankingSettings

EVENTS = 120
AT_ONCE = 8


def everything() -> list[CountedEvent]:
    """The same in every process."""
    drawn = random.Random(7)
    return [
        count(f"m{drawn.randrange(12)}", str(n), ago=drawn.randrange(72) * (NOW - NOW.replace(hour=11)))
        for n in range(EVENTS)
    ]


async def main(database_url: str, valkey_url: str, seed: int) -> None:
    counts = everything()
    random.Random(seed).shuffle(counts)
    clock = ManualClock(NOW)
    async with connected(valkey_url) as valkey, await Database.open(database_url, clock=clock) as database:
        [handler] = Ranking(database, valkey, RankingSettings(boards=(SEOUL,))).handlers
        left = iter(counts)

        async def work() -> None:
            for each in left:
                await handler.handle(event(each))
                print("counted", flush=True)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
