"""Takes wake-ups of campaigns that need a process.

All campaigns share one list. Taking a wake-up moves it atomically to a list of this process, so that it is recovered
if the process dies before it serves the campaign.
"""

import asyncio

from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.consumer_context import ConsumerContext
from tidegate.systems.campaigns.keys import busy_key, campaign_keys, process_keys, wakeups_key

_LISTEN_S = 120.0
"""Duration of one blocking read: short enough to notice a connection that broke silently."""
_LONGEST_PAUSE_S = 1.0
"""Longest pause between two reads where the server does not allow blocking commands."""


class CampaignWakeups:
    """The wake-ups of all campaigns, as seen by one process."""

    def __init__(self, context: ConsumerContext) -> None:
        self._valkey, self._can_block = context.valkey, context.can_block
        self._first_pause_s = context.settings.poll_interval_ms / 1000
        self._wakeups, self._taken = wakeups_key(context.valkey), process_keys(context.valkey, context.owner)["taken"]

    async def next(self) -> str | None:
        """Wait for the oldest wake-up, take it, and return its campaign; None after a timeout.

        After an error or a cancellation a wake-up may have been taken without being returned: see `taken`.
        """
        move = (self._wakeups, self._taken, "RIGHT", "LEFT")
        if self._can_block:
            call = await self._valkey.execute_blocking("BLMOVE", *move, f"{_LISTEN_S:.0f}", within_s=_LISTEN_S)
            return None if call is None else call.decode()
        pause_s = self._first_pause_s
        # Not by `execute`, which repeats the command after an error and could take two.
        while (call := await self._valkey.execute_blocking("LMOVE", *move, within_s=0)) is None:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, max(_LONGEST_PAUSE_S, self._first_pause_s))
        return call.decode()

    async def taken(self) -> set[str]:
        """Campaigns whose wake-ups this process took and has not handled."""
        return {each.decode() for each in await self._valkey.execute("LRANGE", self._taken, 0, -1)}

    async def busy(self) -> set[str]:
        """Campaigns that may have undecided entries."""
        return {each.decode() for each in await self._valkey.execute("SMEMBERS", busy_key(self._valkey))}

    async def ignore(self, campaign: str) -> None:
        """Drop the wake-up of a campaign that does not exist."""
        keys = campaign_keys(self._valkey, campaign)
        await scripts.ignore_wakeup(self._valkey, taken=self._taken, campaign=campaign, **keys)

    async def return_taken(self) -> None:
        """Make the wake-ups that this process took and has not handled available to other processes."""
        await scripts.return_wakeups(self._valkey, wakeups=self._wakeups, taken=self._taken)
