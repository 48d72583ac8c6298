"""A client that reads over HTTP, in a process of its own: at a given rate, or as fast as it is answered.

It knows as much of HTTP as it needs and costs little, since it shares the cores with the measured processes. At a given
rate requests leave when their time has come, whether others were answered or not, and their time counts from then: a
server that is slow for a moment cannot hide it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import cast

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "

Answered = Callable[[bytes, float, bytes], None]
"""Told which request was answered, when it was to leave, and the answer as far as it came with its head."""


def request_for(path: str, host: str = "127.0.0.1") -> bytes:
    """A request as it is sent."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


class Line(asyncio.Protocol):
    """One connection, and at most one request on it."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._transport: asyncio.Transport
        self._request, self._due, self._head, self._missing = b"", 0.0, b"", 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own, which is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        """Connections are closed only after an error."""
        self._pool.broken(self, exc)

    def send(self, request: bytes, due: float) -> None:
        """Ask."""
        self._request, self._due, self._head, self._missing = request, due, b"", 0
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        if self._missing:
            self._missing -= len(data)
        else:
            self._head += data
            end = self._head.find(_HEAD_END)
            if end < 0:
                return
            at = self._head.lower().find(_LENGTH, 0, end)
            size = int(self._head[at + len(_LENGTH) : self._head.index(b"\r", at)]) if at >= 0 else 0
            self._missing = end + len(_HEAD_END) + size - len(self._head)
        if self._missing == 0:
            self._pool.answered(self, self._request, self._due, self._head)

    def close(self) -> None:
        """Leave."""
        self._transport.close()


class Pool:
    """Connections to one server, and requests that wait for a free one."""

    def __init__(self, answered: Answered) -> None:
        self._answered = answered
        self._lines: list[Line] = []
        # Taken in turns: one that had nothing to do for long would be closed by the server.
        self._free: deque[Line] = deque()
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._is_closing = False
        self.failure: Exception | None = None
        """Why it came to nothing."""

    async def connect(self, port: int, lines: int) -> None:
        """Open all connections."""
        loop = asyncio.get_running_loop()
        for _ in range(lines):
            _, line = await loop.create_connection(lambda: Line(self), "127.0.0.1", port)
            self._lines.append(line)
            self._free.append(line)

    def ask(self, request: bytes, due: float) -> None:
        """Send it now, or as soon as a connection is free."""
        if self._free:
            self._free.popleft().send(request, due)
        else:
            self._waiting.append((request, due))

    def answered(self, line: Line, request: bytes, due: float, answer: bytes) -> None:
        """A connection has its answer."""
        self._answered(request, due, answer)
        if self._waiting:
            line.send(*self._waiting.popleft())
        else:
            self._free.append(line)

    def broken(self, line: Line, error: Exception | None) -> None:
        """A connection ended."""
        if not self._is_closing:
            self.failure = error or ConnectionError("a connection was closed")
            self._lines.remove(line)

    async def drain(self) -> None:
        """Wait until everything was answered."""
        while self._waiting or len(self._free) < len(self._lines):
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Leave."""
        self._is_closing = True
        for line in self._lines:
            line.close()


async def read_at_rate(pool: Pool, requests: Iterator[bytes], *, per_second: float, for_s: float) -> None:
    """Ask evenly, for so long."""
    began, sent, total = time.monotonic(), 0, int(per_second * for_s)
    while sent < total:
        late_s = time.monotonic() - began - sent / per_second
        if late_s < 0:
            await asyncio.sleep(-late_s)
            continue
        pool.ask(next(requests), began + sent / per_second)
        sent += 1
        if pool.failure is not None:
            raise pool.failure
    await pool.drain()


async def read_at_full_speed(pool: Pool, requests: Iterator[bytes], *, lines: int, for_s: float) -> None:
    """Ask again as soon as one is answered, on every connection, for so long; the pool must call `more`."""
    for _ in range(lines):
        pool.ask(next(requests), time.monotonic())
    await asyncio.sleep(for_s)
    if pool.failure is not None:
        raise pool.failure
