"""Two ways to wait for new messages: blocking reads, and reads with growing pauses where blocking is not allowed."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

from tidegate.primitives.stream.message import Entry

Fetch = Callable[[int, int | None], Awaitable[list[Entry]]]
"""Reads up to `count` new messages; blocks up to `block_ms`, or not at all if that is None."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class Reader(Protocol):
    """A way to wait for new messages."""

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """Wait for messages and return at most `count`; an empty list after `within_s` seconds."""
        ...


class BlockingReader:
    """Waits with one blocking command."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """See `Reader`."""
        # For the server, a block of 0 means forever.
        return await self._fetch(count, math.ceil(within_s * 1000) if within_s > 0 else None)


class PausingReader:
    """Reads repeatedly, with pauses that grow while there is no message. The pause is kept between calls."""

    def __init__(self, fetch: Fetch, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._fetch, self._first_pause_s = fetch, first_pause_s
        self.pause_s = first_pause_s

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """See `Reader`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not (entries := await self._fetch(count, None)):
            left_s = deadline - loop.time()
            if left_s <= 0:
                return []
            await asyncio.sleep(min(self.pause_s, left_s))
            # The first pause can be set to more than the usual maximum.
            self.pause_s = min(self.pause_s * 2, max(LONGEST_PAUSE_S, self._first_pause_s))
        self.pause_s = self._first_pause_s
        return entries
