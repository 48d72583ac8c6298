"""Recovers what dead processes held of campaigns; runs in the leader.

A dead process may have held messages, was listed as serving campaigns, and may have taken wake-ups that it did not
handle. All of that is given to other processes. What data loss on the server or a hanging process leaves behind is
found by a slower check of the campaigns that may have undecided entries; other campaigns are not read.
"""

from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.membership import Membership
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.decider import campaign_stream
from tidegate.systems.campaigns.scripts import GROUP, busy_key, campaign_keys, process_keys, wakeups_key
from tidegate.systems.campaigns.settings import CampaignSettings

log = get_logger(__name__)
_TRIES = 3


class RecoverableCampaigns:
    """Recoverable work of campaigns; see `RecoverableWork`."""

    def __init__(
        self, valkey: Valkey, membership: Membership, settings: CampaignSettings, clock: Clock | None = None
    ) -> None:
        self._valkey, self._membership, self._settings = valkey, membership, settings
        self._clock = clock or SystemClock()
        self._missing: set[str] = set()
        """Processes that were listed at the last check, but are not members."""

    async def take_over(self, owner: str) -> int:
        """Give the messages, campaigns and wake-ups of a dead process to others; return the number of messages."""
        process = process_keys(self._valkey, owner)
        served = {each.decode() for each in await self._valkey.execute("SMEMBERS", process["served"])}
        taken = sum([await self._take_over(owner, campaign) for campaign in sorted(served)])
        # A process that is only frozen may still wait at a stream after its removal, and receives the next messages.
        others = [campaign for campaign in await self._busy() if campaign not in served]
        taken += sum([await self._stream(campaign).take_over(owner) for campaign in others])
        await scripts.return_wakeups(self._valkey, wakeups=wakeups_key(self._valkey), taken=process["taken"])
        return taken

    async def sweep_idle(self) -> int:
        """Check every campaign that may have undecided entries; return after how many ms to check again."""
        next_in_ms = milliseconds(StreamSettings().idle_limit)
        processes: set[str] = set()
        for campaign in await self._busy():
            # A message that is held for long is not counted as a failed delivery: the database may have been
            # unavailable.
            next_in_ms = min(next_in_ms, await self._stream(campaign).sweep_idle(counts=False))
            processes |= await self._check_processes(campaign)
        await self._take_over_missing(processes)
        # While a process is suspected, check again after a lease: by then a living one is a member again.
        return min(next_in_ms, milliseconds(self._membership.settings.lease)) if self._missing else next_in_ms

    async def holders(self) -> set[str]:
        """Return the processes that hold messages or are listed as serving a campaign."""
        found: set[str] = set()
        for campaign in await self._busy():
            found |= await self._stream(campaign).holders() | await self._check_processes(campaign)
        return found

    async def _take_over(self, owner: str, campaign: str) -> int:
        """Take over the messages of a dead process in one campaign, and remove it; return their number."""
        taken, stream = 0, self._stream(campaign)
        # `leave` refuses while the process holds messages, which would be lost with its consumer. So
        # take over and leave again.
        for _ in range(_TRIES):
            taken += await stream.take_over(owner)
            reply = await scripts.leave(
                self._valkey,
                served=process_keys(self._valkey, owner)["served"],
                campaign=campaign,
                owner=owner,
                group=GROUP,
                idle_ms=-1,
                now_ms=self._clock.pinned_ms,
                **campaign_keys(self._valkey, campaign),
            )
            if reply != [b"pending"]:
                log.warning("campaign.process_removed", campaign=campaign, owner=owner, messages=taken)
                return taken
        # The process is frozen and still waits at the stream, where it receives the next messages.
        raise ValkeyUnavailable(f"campaign {campaign!r}: {owner} is given messages as fast as they are taken from it")

    async def _check_processes(self, campaign: str) -> set[str]:
        """Repair a campaign; return the processes that serve it."""
        keys = campaign_keys(self._valkey, campaign)
        match await scripts.repair(self._valkey, campaign=campaign, group=GROUP, **keys):
            case [b"served", *processes]:
                return {owner.decode() for owner in processes}
            case [b"called"]:
                log.warning("campaign.woken_again", campaign=campaign)
            case _:
                pass
        return set()

    async def _take_over_missing(self, processes: set[str]) -> None:
        """Take over from listed processes that are not members, if they were not at the last check either.

        Not at the first check, since processes join again one by one after the server lost its data. Processes that
        died are reported when their leases end.
        """
        if not processes:
            self._missing = set()
            return
        missing = processes - {member.owner for member in await self._membership.members()}
        # Missing at two checks in a row.
        for owner in sorted(missing & self._missing):
            await self.take_over(owner)
        # Those that were taken over now are not remembered: each takeover needs two checks in a row.
        self._missing = missing - self._missing

    async def _busy(self) -> list[str]:
        return sorted(each.decode() for each in await self._valkey.execute("SMEMBERS", busy_key(self._valkey)))

    def _stream(self, campaign: str) -> Stream:
        return campaign_stream(self._valkey, campaign, self._settings, self._clock)
