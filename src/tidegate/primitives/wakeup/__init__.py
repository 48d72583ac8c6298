"""Wake-up signal: one process waits, many notify. A token in a list stays until it is taken, so no signal is lost."""

import asyncio

from tidegate.core.arguments import require_positive
from tidegate.core.backoff import OUTAGE_PAUSES
from tidegate.core.errors import ValkeyUnavailable
from tidegate.storage.valkey import Key, Valkey, lua_script

__all__ = ["Wakeup"]

_SHORTEST_BLOCK_S = 0.001
"""A shorter time would be zero for the server, which means forever."""
_PAUSES_S = (0.01, 1.0)
"""First and longest pause between two reads, if the server forbids blocking."""
_CLAIM_TRIES = 64


@lua_script("send.lua")
async def _send(valkey: Valkey, *, wake: Key) -> None: ...


class Wakeup:
    """The `wake` list of one unit. Its scripts send the signal; one process at a time waits (the leader)."""

    def __init__(self, valkey: Valkey, key: Key) -> None:
        self._valkey, self._key = valkey, key
        self._failures = 0

    async def notify(self) -> None:
        """Wake the waiting process, or the next one that waits."""
        await _send(self._valkey, wake=self._key)

    async def wait(self, within_s: float) -> bool:
        """Block until a signal arrives (True) or `within_s` seconds passed (False).

        A broken connection counts as a signal, after a pause that grows with each failure: a signal may have been lost
        with it, and a needless wake-up is harmless. A server that refuses counts too, since taking a token is a write.
        """
        require_positive("within_s", within_s)
        try:
            woken = await (self._block(within_s) if self._valkey.info.can_block else self._poll(within_s))
        except ValkeyUnavailable:
            self._failures += 1
            pause_s = OUTAGE_PAUSES.delay(self._failures).total_seconds()
            await asyncio.sleep(min(pause_s, within_s))
            return True
        self._failures = 0
        return woken

    async def claim(self) -> None:
        """Make sure that signals reach this process. A new leader calls it before its first wait.

        The server serves the process that waits longest. A former leader that is frozen or cut off may still be
        blocked there and would take the next signal. So signals are sent until one stays and can be taken back.
        """
        for _ in range(_CLAIM_TRIES):
            await self._valkey.execute("RPUSH", self._key, "1")
            # A signal that is gone was taken by a reader that was still blocked, and is blocked no longer.
            if await self._valkey.execute("LPOP", self._key) is not None:
                return

    async def pass_on(self) -> None:
        """Signal the successor after the own wait was cancelled, which may have taken a signal without acting on it.

        Twice, because the server may not know yet that the wait has ended and give it the first one.
        """
        await self.notify()
        await self.notify()

    async def _block(self, within_s: float) -> bool:
        timeout = max(within_s, _SHORTEST_BLOCK_S)
        return await self._valkey.execute_blocking("BLPOP", self._key, f"{timeout:.3f}", within_s=timeout) is not None

    async def _poll(self, within_s: float) -> bool:
        """For servers without blocking reads: read with growing pauses."""
        loop = asyncio.get_running_loop()
        deadline, (pause_s, longest_s) = loop.time() + within_s, _PAUSES_S
        while await self._valkey.execute("LPOP", self._key) is None:
            if (left_s := deadline - loop.time()) <= 0:
                return False
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, longest_s)
        return True
