"""One waits, many ring. The ring is a token in a list: it stays until it is taken, so a wake-up cannot be lost."""

import asyncio

from tidegate.core.arguments import require_positive
from tidegate.core.backoff import OUTAGE_PAUSES
from tidegate.core.errors import ValkeyUnavailable
from tidegate.storage.valkey import Key, Valkey, lua_script

_SHORTEST_BLOCK_S = 0.001
"""Anything less would be zero to the server, which means: for ever."""
_PAUSES_S = (0.01, 1.0)
"""The first and the longest pause between two looks, where the server forbids blocking."""
_CLAIM_TRIES = 64


@lua_script("send.lua")
async def _send(valkey: Valkey, *, wake: Key) -> None: ...


class Wakeup:
    """The `wake` list of one unit, whose scripts ring it; one process waits at it at a time (the leader)."""

    def __init__(self, valkey: Valkey, key: Key) -> None:
        self._valkey, self._key = valkey, key
        self._failures = 0

    async def notify(self) -> None:
        """Wake the one who waits, or the next one who comes to wait."""
        await _send(self._valkey, wake=self._key)

    async def wait(self, within_s: float) -> bool:
        """Block until somebody rang (True) or `within_s` seconds passed (False).

        A broken connection counts as a ring, after a pause that grows with each: a ring may have been lost with it,
        and to wake for nothing does no harm. So does a server that refuses: taking a token is a write.
        """
        require_positive("within_s", within_s)
        try:
            rung = await (self._block(within_s) if self._valkey.info.can_block else self._look(within_s))
        except ValkeyUnavailable:
            self._failures += 1
            pause_s = OUTAGE_PAUSES.delay(self._failures).total_seconds()
            await asyncio.sleep(min(pause_s, within_s))
            return True
        self._failures = 0
        return rung

    async def claim(self) -> None:
        """Make sure that rings come to us; a new leader does this before its first wait.

        The server serves the one who waits longest. A former leader that is frozen, or cut off, may still wait there
        and would swallow the next ring. So we ring until the token stays for us to take back.
        """
        for _ in range(_CLAIM_TRIES):
            await self._valkey.execute("RPUSH", self._key, "1")
            if await self._valkey.execute("LPOP", self._key) is not None:
                return

    async def pass_on(self) -> None:
        """Ring for our successor, after a wait of ours was cancelled: a ring may have come to it that nobody acted on.

        Twice, because the server may not know yet that our wait ended, and give it the first.
        """
        await self.notify()
        await self.notify()

    async def _block(self, within_s: float) -> bool:
        timeout = max(within_s, _SHORTEST_BLOCK_S)
        return await self._valkey.execute_blocking("BLPOP", self._key, f"{timeout:.3f}", within_s=timeout) is not None

    async def _look(self, within_s: float) -> bool:
        """For servers without blocking reads: look, and pause longer each time."""
        loop = asyncio.get_running_loop()
        deadline, (pause_s, longest_s) = loop.time() + within_s, _PAUSES_S
        while await self._valkey.execute("LPOP", self._key) is None:
            if (left_s := deadline - loop.time()) <= 0:
                return False
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, longest_s)
        return True
