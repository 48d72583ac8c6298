"""Readers of the service level, in a process of their own: `-m bench.service_readers '{...}'`.

Most reads are of known, fresh subjects. The others are of unknown subjects, so each of them causes a refresh for which
a reader waits; its duration ends with the notification of the refresh.
"""

import asyncio
import random
import sys
import time
from collections.abc import Collection, Iterator

import msgspec
import uvloop

from bench.reading import Pool, read_at_rate, request_for
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.cache import RefreshFeed

LINES = 50
PATH = "/v1/snapshots/character/"
_PATIENCE_S = 10.0


class Plan(msgspec.Struct, frozen=True):
    """The parameters of the load."""

    port: int
    valkey_url: str
    prefix: str
    for_s: float
    known: int
    """Characters from 1 on that are known already."""
    unknown_from: int
    """The first subject that was never read."""
    reads_per_s: float
    unknown_per_s: float


class Told(msgspec.Struct, frozen=True):
    """What became of it."""

    reads_s: list[float]
    """How long each took, in order."""
    refreshes_s: list[float]
    """From a read that found nothing to the news that it was written, in order."""
    unanswered: int
    """Refreshes that did not come."""
    refused: int
    """Reads that were not answered with 200."""
    cpu_s: float


class Readers:
    """All of them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._reads: list[float] = []
        self._refreshes: list[float] = []
        self._asked: dict[str, float] = {}
        self._refused = 0

    async def read(self) -> Told:
        """From the first read to the last refresh."""
        plan = self._plan
        valkey = await Valkey.connect(plan.valkey_url, prefix=plan.prefix)
        news, pool = RefreshFeed(valkey, valkey.unit("snapshots")), Pool(self._answered)
        cpu = time.process_time()
        async with news.follow(self._hear):
            await pool.connect(plan.port, LINES)
            print("{}", flush=True)
            await read_at_rate(pool, self._requests(), per_second=plan.reads_per_s, for_s=plan.for_s)
            print("{}", flush=True)
            deadline = time.monotonic() + _PATIENCE_S
            while self._asked and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
        pool.close()
        await valkey.close()
        return Told(
            reads_s=sorted(self._reads),
            refreshes_s=sorted(self._refreshes),
            unanswered=len(self._asked),
            refused=self._refused,
            cpu_s=time.process_time() - cpu,
        )

    def _requests(self) -> Iterator[bytes]:
        plan, chance = self._plan, random.Random(1)
        known = [request_for(f"{PATH}{n}") for n in range(1, plan.known + 1)]
        share, new = plan.unknown_per_s / plan.reads_per_s, plan.unknown_from
        while True:
            if chance.random() < share:
                self._asked[f"character/{new}"] = time.monotonic()
                yield request_for(f"{PATH}{new}")
                new += 1
            else:
                yield chance.choice(known)

    def _answered(self, request: bytes, due: float, answer: bytes) -> None:
        del request
        self._reads.append(time.monotonic() - due)
        self._refused += not answer.startswith(b"HTTP/1.1 200 ")

    def _hear(self, moved: Collection[str] | None) -> None:
        now = time.monotonic()
        for subject in moved or ():
            if (asked := self._asked.pop(subject, None)) is not None:
                self._refreshes.append(now - asked)


async def main(plan: Plan) -> None:
    """Print a line at the start, one at the end of the reads, and one with the results."""
    print(msgspec.json.encode(await Readers(plan).read()).decode())


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
