"""Shared dependencies of all consumer pools of a process."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta

from tidegate.core.clock import Clock
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.runtime.outage import Outage
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.kinds import Kinds
from tidegate.systems.campaigns.scripts import GROUP, campaigns_unit, stream_name
from tidegate.systems.campaigns.settings import CampaignSettings


@dataclass(frozen=True)
class Outages:
    """Outages that consumer pools wait for; all campaigns of a process share them, so each is logged once."""

    listening: Outage = field(default_factory=lambda: Outage("campaigns.listen"))
    joining: Outage = field(default_factory=lambda: Outage("campaigns.join"))
    reading: Outage = field(default_factory=lambda: Outage("campaigns.read"))
    deciding: Outage = field(default_factory=lambda: Outage("campaigns.decide"))
    proving: Outage = field(default_factory=lambda: Outage("campaigns.prove"))
    settling: Outage = field(default_factory=lambda: Outage("campaigns.settle"))
    leaving: Outage = field(default_factory=lambda: Outage("campaigns.leave"))


@dataclass(frozen=True)
class ConsumerContext:
    """Servers, settings, known kinds, and the name of this process."""

    valkey: Valkey
    database: Database
    owner: str
    kinds: Kinds
    settings: CampaignSettings
    outages: Outages = field(default_factory=Outages)
    on_decided: Callable[[str, Collection[str]], object] = lambda _campaign, _users: None
    """Called with a campaign and its users with new results; must not block."""

    @property
    def can_block(self) -> bool:
        """Whether reads block on the server instead of polling."""
        return self.valkey.info.can_block if self.settings.blocking is None else self.settings.blocking

    def stream(self, campaign: str) -> Stream:
        """Return the stream of one campaign."""
        return campaign_stream(self.valkey, campaign, self.settings, self.database.clock)


def campaign_stream(valkey: Valkey, campaign: str, settings: CampaignSettings, clock: Clock) -> Stream:
    """Return the stream of one campaign, configured by the settings of campaigns."""
    ours = StreamSettings(
        group=GROUP,
        max_deliveries=settings.max_deliveries,
        blocking=settings.blocking,
        poll_interval=timedelta(milliseconds=settings.poll_interval_ms),
    )
    return Stream(valkey, campaigns_unit(valkey), stream_name(campaign), ours, clock, one_of="campaigns")
