"""Reads of many subjects, in a process of its own: `-m bench.read_load '{...}'` prints what was seen."""

import random
import sys
import time
from collections.abc import Iterator

import msgspec
import uvloop

from bench.reading import Pool, read_at_full_speed, read_at_rate, request_for


class Load(msgspec.Struct, frozen=True):
    """The parameters of the load."""

    port: int
    path: str
    """What stands before the key."""
    keys: int
    """They are the numbers from 1 on."""
    lines: int
    """Connections."""
    for_s: float
    per_second: float | None = None
    """None: as fast as answers come."""
    counts_updating: bool = False
    """Whether answers are counted that say that a refresh is queued."""


class Seen(msgspec.Struct, frozen=True):
    """The measured result."""

    per_second: float
    took_s: list[float]
    """Each request, in order."""
    refused: int
    """Answers that were not 200."""
    updating: int
    """Answers without a snapshot that say that a refresh is queued, where they are counted."""
    busy: float
    """The share of a core that the client used: near 1 the client is the limit."""


class Reader:
    """Reads every subject once, and then any, at random."""

    def __init__(self, load: Load) -> None:
        self._load, self._chance = load, random.Random(1)
        self._took: list[float] = []
        self._refused = self._updating = 0
        self._pool = Pool(self._answered)
        self._requests = self._endless()

    async def read(self) -> Seen:
        """All of it."""
        load = self._load
        await self._pool.connect(load.port, load.lines)
        began, cpu = time.monotonic(), time.process_time()
        if load.per_second is None:
            await read_at_full_speed(self._pool, self._requests, lines=load.lines, for_s=load.for_s)
        else:
            await read_at_rate(self._pool, self._requests, per_second=load.per_second, for_s=load.for_s)
        seconds = time.monotonic() - began
        self._pool.close()
        return Seen(
            per_second=len(self._took) / seconds,
            took_s=sorted(self._took),
            refused=self._refused,
            updating=self._updating,
            busy=(time.process_time() - cpu) / seconds,
        )

    def _endless(self) -> Iterator[bytes]:
        requests = [request_for(f"{self._load.path}{n}") for n in range(1, self._load.keys + 1)]
        yield from requests  # all of them once, in order
        while True:
            yield self._chance.choice(requests)

    def _answered(self, request: bytes, due: float, answer: bytes) -> None:
        del request
        now = time.monotonic()
        self._took.append(now - due)
        self._refused += not answer.startswith(b"HTTP/1.1 200 ")
        if self._load.counts_updating:
            self._updating += b'"freshness":"UPDATING"' in answer
        if self._load.per_second is None:
            self._pool.ask(next(self._requests), now)


async def main(load: Load) -> None:
    """Print the result."""
    print(msgspec.json.encode(await Reader(load).read()).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=Load)))
