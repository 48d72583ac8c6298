"""Campaigns of an installation, open; and what they contribute to a process."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from tidegate.runtime.recoverer import RecoverableWork
from tidegate.runtime.retention import RetentionRule
from tidegate.runtime.service import Service
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Api, Context, DeadLetterCount, Gauges, HttpContext, OpenSystem, Topic
from tidegate.systems.campaigns.campaigns import Campaigns
from tidegate.systems.campaigns.consumer_context import ConsumerContext
from tidegate.systems.campaigns.first_come import FirstCome
from tidegate.systems.campaigns.gauges import CampaignGauges, DeadLetterCounts
from tidegate.systems.campaigns.kinds import Kinds, load_kind
from tidegate.systems.campaigns.manager import CampaignManager
from tidegate.systems.campaigns.points import Points
from tidegate.systems.campaigns.recoverable_work import RecoverableCampaigns
from tidegate.systems.campaigns.retention import CampaignRule
from tidegate.systems.campaigns.settings import CampaignSettings


def campaign_kinds(settings: CampaignSettings) -> Kinds:
    """The kinds that every installation has, and those of its settings; raises `InvalidSettings`."""
    return Kinds([FirstCome(), Points(), *(load_kind(place) for place in settings.kinds)])


@asynccontextmanager
async def open_campaigns(settings: Settings, database: Database, valkey: Valkey) -> AsyncGenerator[Campaigns]:
    """The campaigns of an installation, for the length of a block."""
    ours = settings.section(CampaignSettings)
    campaigns = Campaigns(valkey, database, ours, kinds=campaign_kinds(ours).names)
    try:
        yield campaigns
    finally:
        await campaigns.close()


class OpenCampaigns(OpenSystem):
    """What campaigns contribute to a process."""

    def __init__(self, context: Context, campaigns: Campaigns) -> None:
        self._context, self._settings = context, context.section(CampaignSettings)
        self.campaigns = campaigns

    def workers(self) -> Mapping[str, Service]:
        """The service that decides entries, unless the settings disable it."""
        if not self._settings.enabled:
            return {}
        return {"campaigns": self.manager()}

    def manager(self) -> CampaignManager:
        """A new one; a process has one at most."""
        context, kinds = self._context, campaign_kinds(self._settings)
        consumer_context = ConsumerContext(
            context.valkey,
            context.database,
            context.owner,
            kinds,
            self._settings,
            on_decided=self.campaigns.result_feed.decided,
        )
        return CampaignManager(consumer_context, self.campaigns.installer)

    def recoverable(self) -> Sequence[RecoverableWork]:
        """Entries and campaigns that dead processes held."""
        context = self._context
        return [RecoverableCampaigns(context.valkey, context.membership, self._settings, context.database.clock)]

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Campaigns that ended long ago, with their entries."""
        return [CampaignRule(self._context.valkey, self._context.database, self._settings.kept)]

    def api(self, http: HttpContext) -> Api:
        """`/v1/campaigns`."""
        from tidegate.systems.campaigns.api.routes import campaign_api

        return campaign_api(self.campaigns, http)

    def topics(self) -> Sequence[Topic]:
        """The first page of `/v1/campaigns`."""
        from tidegate.systems.campaigns.api.campaigns import CampaignFilter, CampaignPage, CampaignRoutes

        routes = CampaignRoutes(self.campaigns)

        async def read() -> CampaignPage:
            return await routes.list_campaigns(CampaignFilter())

        return [Topic("campaigns", read)]

    def dead_letters(self) -> Sequence[DeadLetterCount]:
        """Entries that could not be decided, by campaign."""
        counts = DeadLetterCounts(self._context.valkey, self._context.database)
        return [DeadLetterCount("campaigns", "campaigns", counts.read, server="the database or Valkey")]

    def gauges(self) -> Sequence[Gauges]:
        """Campaigns at work, entries in line, and dead letters."""
        return [CampaignGauges(self._context.valkey, self._context.database)]
