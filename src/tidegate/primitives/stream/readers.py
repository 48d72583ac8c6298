"""Two ways to wait for new messages: on the server, and, where it forbids that, between looks that grow rarer."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

from tidegate.primitives.stream.message import Entry

Fetch = Callable[[int, int | None], Awaitable[list[Entry]]]
"""Ask the server for `count` new messages; it may wait for `block_ms`, or not at all where that is None."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class Reader(Protocol):
    """Waits for new messages."""

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """At most `count` of them as soon as there are some; none when `within_s` seconds have passed."""
        ...


class BlockingReader:
    """One command that the server answers when there is something to say."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """See `Reader`."""
        # To the server, a block of 0 means for ever.
        return await self._fetch(count, math.ceil(within_s * 1000) if within_s > 0 else None)


class PausingReader:
    """Looks, and pauses longer each time in vain; the pause outlives one call, and ends with the first message."""

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
            self.pause_s = min(self.pause_s * 2, max(LONGEST_PAUSE_S, self._first_pause_s))
        self.pause_s = self._first_pause_s
        return entries
