"""Calls for hands, as one process takes them: one list for all campaigns, at which the server serves who waits longest.

In the same step in which a call is taken it is noted as taken by this process, so it cannot perish with it.
"""

import asyncio

from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.consumer_context import ConsumerContext
from tidegate.systems.campaigns.keys import busy_key, campaign_keys, process_keys, wakeups_key

_LISTEN_S = 120.0
"""How long one blocking read lasts: short enough to notice a connection that died in silence."""
_LONGEST_PAUSE_S = 1.0
"""Between two looks, where the server forbids blocking."""


class CampaignWakeups:
    """The calls of all campaigns."""

    def __init__(self, context: ConsumerContext) -> None:
        self._valkey, self._can_block = context.valkey, context.can_block
        self._first_pause_s = context.settings.poll_interval_ms / 1000
        self._wakeups, self._taken = wakeups_key(context.valkey), process_keys(context.valkey, context.owner)["taken"]

    async def next(self) -> str | None:
        """Take the call of the campaign that calls longest, once there is one; None after a while without any.

        After an error, or a cancellation, one may have been taken that nobody knows of: see `taken`.
        """
        move = (self._wakeups, self._taken, "RIGHT", "LEFT")
        if self._can_block:
            call = await self._valkey.execute_blocking("BLMOVE", *move, f"{_LISTEN_S:.0f}", within_s=_LISTEN_S)
            return None if call is None else call.decode()
        pause_s = self._first_pause_s
        # Not by `execute`, which would ask again after an error, and take another.
        while (call := await self._valkey.execute_blocking("LMOVE", *move, within_s=0)) is None:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, max(_LONGEST_PAUSE_S, self._first_pause_s))
        return call.decode()

    async def taken(self) -> set[str]:
        """The campaigns whose calls we took and have not answered."""
        return {each.decode() for each in await self._valkey.execute("LRANGE", self._taken, 0, -1)}

    async def busy(self) -> set[str]:
        """The campaigns that may have messages."""
        return {each.decode() for each in await self._valkey.execute("SMEMBERS", busy_key(self._valkey))}

    async def ignore(self, campaign: str) -> None:
        """There is no such campaign any more."""
        keys = campaign_keys(self._valkey, campaign)
        await scripts.ignore_wakeup(self._valkey, taken=self._taken, campaign=campaign, **keys)

    async def return_taken(self) -> None:
        """Let others take what we took and have not answered."""
        await scripts.return_wakeups(self._valkey, wakeups=self._wakeups, taken=self._taken)
