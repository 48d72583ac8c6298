"""Campaigns for the tests of the door, on a clock that stands still; nobody works on the entries."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.core.clock import Clock
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.model import FIRST_COME, Campaign, CampaignEntry, CampaignPlan
from tidegate.systems.campaigns.scripts import CampaignKeys, campaign_keys
from tidegate.systems.campaigns.service import Campaigns
from tidegate.systems.campaigns.settings import CampaignSettings

CAMPAIGN = "autumn"


@dataclass
class CampaignHarness:
    """An installation with its campaigns."""

    valkey: Valkey
    database: Database
    campaigns: Campaigns

    async def open(self, campaign: str = CAMPAIGN, *, total: int = 10, **plan: Any) -> Campaign:
        """A campaign that is open."""
        values: dict[str, Any] = {"kind": FIRST_COME, "total_count": total, **plan}
        await self.campaigns.create(CampaignPlan(id=campaign, **values))
        return await self.campaigns.start(campaign)

    def keys(self, campaign: str = CAMPAIGN) -> CampaignKeys:
        return campaign_keys(self.valkey, campaign)

    async def line(self, campaign: str = CAMPAIGN) -> list[CampaignEntry]:
        """Who is in line, in order."""
        found = await self.valkey.execute("XRANGE", self.keys(campaign)["stream"], "-", "+")
        return [msgspec.json.decode(fields[b"payload"], type=CampaignEntry) for _, fields in found]

    async def wakeups(self) -> list[bytes]:
        """The campaigns that call for hands."""
        return await self.valkey.execute("LRANGE", self.keys()["wakeups"], 0, -1)


@asynccontextmanager
async def harness_at(
    url: str, valkey: Valkey, clock: Clock | None = None, **settings: Any
) -> AsyncGenerator[CampaignHarness]:
    """A shop on this database, which has all tables."""
    async with await Database.open(url, clock=clock) as database:
        campaigns = Campaigns(valkey, database, CampaignSettings(**settings))
        yield CampaignHarness(valkey, database, campaigns)
        await campaigns.close()
