"""Visitors that follow their places over HTTP, in a separate process: `-m bench.watch_load FILE PORT`.

FILE has their passes, a JSON list. It prints one line when all of them have received their place; after a line on its
input, what each saw and when, on the monotonic clock that all processes of a machine share.
"""

import asyncio
import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

ROOM = "bench"
_AT_ONCE = 100
_POSITION = re.compile(rb'"position":(\d+)')


class Seen(msgspec.Struct):
    """What one of them saw."""

    at_s: list[float]
    positions: list[int]


class Visitor(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, on_first: asyncio.Semaphore) -> None:
        self._request, self._on_first = request, on_first
        self.seen = Seen([], [])

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        # An event is written in one piece, and is much shorter than what is read at once.
        positions = _POSITION.findall(data)
        if not positions:
            return
        if not self.seen.at_s:
            self._on_first.release()
        self.seen.at_s.append(time.monotonic())
        self.seen.positions.append(int(positions[-1]))


async def main(file: str, port: int) -> None:
    loop, first = asyncio.get_running_loop(), asyncio.Semaphore(0)
    visitors: list[Visitor] = []
    for n, token in enumerate(msgspec.json.decode(Path(file).read_bytes(), type=list[str])):
        request = (
            f"GET /v1/rooms/{ROOM}/place/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nTidegate-Pass: {token}\r\n\r\n"
        ).encode()
        visitors.append(Visitor(request, first))
        await loop.create_connection(lambda: visitors[-1], "127.0.0.1", port)
        if n >= _AT_ONCE:  # so many are under way at once
            await first.acquire()
    for _ in visitors[-_AT_ONCE:]:
        await first.acquire()
    print("{}", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    print(msgspec.json.encode([visitor.seen for visitor in visitors]).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
