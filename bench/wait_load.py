"""Readers that wait for a refresh over HTTP, in a separate process: `-m bench.wait_load '{...}'`.

For each command on its input, a line of JSON, it prints two lines: when all readers wait, and when each was answered.
"""

import asyncio
import sys
import time

import msgspec
import uvloop

from bench.reading import Pool, request_for


class Crowd(msgspec.Struct, frozen=True):
    """The readers of one subject: the number of connections to each server."""

    key: str
    ports: list[int]
    waiting: int
    """Readers that wait for the refresh, at each server."""
    passing: int
    """Readers that take the current state, at each server, after the others have begun to wait."""
    within_s: float


class Released(msgspec.Struct, frozen=True):
    """What became of them."""

    at_s: list[float]
    """When the waiting readers were answered, by the monotonic clock that all processes of a machine share."""
    refused: int
    """Answers that were not 200, or had no snapshot though their reader waited."""
    example: str = ""
    """One of these."""


class Gathering:
    """One crowd."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._at: list[float] = []
        self._refused, self._example = 0, ""
        self._passed, self._done = asyncio.Event(), asyncio.Event()
        self._to_pass = crowd.passing * len(crowd.ports)
        self._to_wait = crowd.waiting * len(crowd.ports)

    async def run(self) -> Released:
        """From the first connection to the last answer."""
        crowd, now = self._crowd, time.monotonic()
        waiting = request_for(f"/v1/snapshots/character/{crowd.key}?wait={crowd.within_s:.0f}")
        passing = request_for(f"/v1/snapshots/character/{crowd.key}")
        pools: list[tuple[Pool, Pool]] = []
        for port in crowd.ports:
            pools.append((Pool(self._released), Pool(self._answered)))
            await pools[-1][0].connect(port, crowd.waiting)
            await pools[-1][1].connect(port, crowd.passing)
        for patient, _ in pools:
            for _ in range(crowd.waiting):
                patient.ask(waiting, now)
        # This request is handled after those of the waiting readers: when it is answered, they wait.
        for _, hasty in pools:
            for _ in range(crowd.passing):
                hasty.ask(passing, now)
        await self._passed.wait()
        print("{}", flush=True)
        await self._done.wait()
        for patient, hasty in pools:
            patient.close()
            hasty.close()
        return Released(at_s=sorted(self._at), refused=self._refused, example=self._example)

    def _released(self, request: bytes, due: float, answer: bytes) -> None:
        del request, due
        self._at.append(time.monotonic())
        self._note(answer, is_good=answer.startswith(b"HTTP/1.1 200 ") and b'{"snapshot":null' not in answer)
        if len(self._at) == self._to_wait:
            self._done.set()

    def _answered(self, request: bytes, due: float, answer: bytes) -> None:
        del request, due
        self._note(answer, is_good=answer.startswith(b"HTTP/1.1 200 "))
        self._to_pass -= 1
        if not self._to_pass:
            self._passed.set()

    def _note(self, answer: bytes, *, is_good: bool) -> None:
        if not is_good:
            self._refused, self._example = self._refused + 1, answer[:500].decode(errors="replace")


async def main() -> None:
    """One group of readers after another, until the input ends."""
    print("{}", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        released = await Gathering(msgspec.json.decode(line, type=Crowd)).run()
        print(msgspec.json.encode(released).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
