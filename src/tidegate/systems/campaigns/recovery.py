"""What processes hold of campaigns, for whoever leads: nothing of it dies with them.

A process that died held messages, was counted on as hands, and may have taken calls that it never answered. All of that
goes to others. What a loss of the server's last moments, or a process that hangs, leaves behind is found by a slower
look at the campaigns that may have something to do, of which there are few, and never at all that exist.
"""

from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.membership import Membership
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.consumer_context import campaign_stream
from tidegate.systems.campaigns.keys import GROUP, busy_key, campaign_keys, process_keys, wakeups_key
from tidegate.systems.campaigns.settings import CampaignSettings

log = get_logger(__name__)

_TRIES = 3


class RecoverableCampaigns:
    """See `RecoverableWork`: the leader's recoverer looks after it."""

    def __init__(
        self, valkey: Valkey, membership: Membership, settings: CampaignSettings, clock: Clock | None = None
    ) -> None:
        self._valkey, self._membership, self._settings = valkey, membership, settings
        self._clock = clock or SystemClock()
        self._missing: set[str] = set()
        """Hands that were not among the living at the last look."""

    async def take_over(self, owner: str) -> int:
        """Give its messages, its campaigns and its calls to others; how many messages that were."""
        hand = process_keys(self._valkey, owner)
        served = {each.decode() for each in await self._valkey.execute("SMEMBERS", hand["served"])}
        taken = sum([await self._take_over(owner, campaign) for campaign in sorted(served)])
        # One that is only frozen may still wait at a stream after it was removed, and is given what comes next.
        others = [campaign for campaign in await self._busy() if campaign not in served]
        taken += sum([await self._stream(campaign).take_over(owner) for campaign in others])
        await scripts.return_wakeups(self._valkey, wakeups=wakeups_key(self._valkey), taken=hand["taken"])
        return taken

    async def sweep_idle(self) -> int:
        """Look at every campaign that may have something to do; in how many ms to look again."""
        next_in_ms = milliseconds(StreamSettings().idle_limit)
        hands: set[str] = set()
        for campaign in await self._busy():
            # To be held for long is nobody's fault: the database may have been away. Only failures make a dead letter.
            next_in_ms = min(next_in_ms, await self._stream(campaign).sweep_idle(counts=False))
            hands |= await self._look(campaign)
        await self._take_from_the_missing(hands)
        return min(next_in_ms, milliseconds(self._membership.settings.lease)) if self._missing else next_in_ms

    async def holders(self) -> set[str]:
        """The processes that hold messages or are counted on as hands."""
        found: set[str] = set()
        for campaign in await self._busy():
            found |= await self._stream(campaign).holders() | await self._look(campaign)
        return found

    async def _take_over(self, owner: str, campaign: str) -> int:
        taken, stream = 0, self._stream(campaign)
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
        # It is frozen and still waits at the stream, where it is given what comes next.
        raise ValkeyUnavailable(f"campaign {campaign!r}: {owner} is given messages as fast as they are taken from it")

    async def _look(self, campaign: str) -> set[str]:
        """Make good what can be; the hands that it has."""
        keys = campaign_keys(self._valkey, campaign)
        match await scripts.repair(self._valkey, campaign=campaign, group=GROUP, **keys):
            case [b"served", *hands]:
                return {owner.decode() for owner in hands}
            case [b"called"]:
                log.warning("campaign.woken_again", campaign=campaign)
            case _:
                pass
        return set()

    async def _take_from_the_missing(self, hands: set[str]) -> None:
        """Hands that are not among the living, and were not at the last look: a lease that ended tells of the others.

        Not at the first look, since a server that lost everything is joined again by and by.
        """
        if not hands:
            self._missing = set()
            return
        missing = hands - {member.owner for member in await self._membership.members()}
        for owner in sorted(missing & self._missing):
            await self.take_over(owner)
        self._missing = missing - self._missing

    async def _busy(self) -> list[str]:
        return sorted(each.decode() for each in await self._valkey.execute("SMEMBERS", busy_key(self._valkey)))

    def _stream(self, campaign: str) -> Stream:
        return campaign_stream(self._valkey, campaign, self._settings, self._clock)
