"""Campaigns, put together: the same in a process that answers, in one that works on entries, and in a command."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.app.parts import Parts
from tidegate.app.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.campaigns import Campaigns
from tidegate.systems.campaigns.first_come import FirstCome
from tidegate.systems.campaigns.kinds import Kinds, load_kind
from tidegate.systems.campaigns.manager import CampaignManager
from tidegate.systems.campaigns.points import Points
from tidegate.systems.campaigns.recoverable_work import CampaignEstate
from tidegate.systems.campaigns.workshop import Workshop


def campaign_kinds(settings: Settings) -> Kinds:
    """The kinds that every installation has, and those of its settings; raise `InvalidSettings`."""
    return Kinds([FirstCome(), Points(), *(load_kind(place) for place in settings.campaigns.kinds)])


@asynccontextmanager
async def open_campaigns(settings: Settings, database: Database, valkey: Valkey) -> AsyncGenerator[Campaigns]:
    """The campaigns of an installation, for the length of a block."""
    campaigns = Campaigns(valkey, database, settings.campaigns, kinds=campaign_kinds(settings).names)
    try:
        yield campaigns
    finally:
        await campaigns.close()


def campaign_workers(parts: Parts, campaigns: Campaigns) -> dict[str, CampaignManager]:
    """The service that works on entries in this process; none where the settings want none."""
    ours = parts.settings.campaigns
    if not ours.enabled:
        return {}
    kinds = campaign_kinds(parts.settings)
    workshop = Workshop(parts.valkey, parts.database, parts.owner, kinds, ours, on_decided=campaigns.news.decided)
    return {"campaigns": CampaignManager(workshop, campaigns.installer)}


def campaign_estate(parts: Parts) -> CampaignEstate:
    """What the leader takes from processes that died."""
    return CampaignEstate(parts.valkey, parts.presence, parts.settings.campaigns, parts.database.clock)
