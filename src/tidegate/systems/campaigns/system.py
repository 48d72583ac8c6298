"""Declares campaigns to the application. Modules are imported when a process uses them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Command, Context, DeadLetterStore, OpenSystem, System, Topic

if TYPE_CHECKING:
    from tidegate.runtime.recoverer import RecoverableWork
    from tidegate.runtime.retention import RetentionRule
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database
    from tidegate.storage.valkey import Valkey
    from tidegate.system import Api, Gauges, HttpContext
    from tidegate.systems.campaigns.kinds import Kinds
    from tidegate.systems.campaigns.service import Campaigns
    from tidegate.systems.campaigns.settings import CampaignSettings
    from tidegate.systems.campaigns.worker import CampaignWorker


class CampaignSystem(System):
    """Promotions with limited stock: users enter, and workers decide what each entry gets."""

    name = "campaigns"
    sections = {"campaigns": "tidegate.systems.campaigns.settings:CampaignSettings"}
    metrics = "tidegate.systems.campaigns.metrics"
    commands = {
        "campaign": Command(
            "tidegate.systems.campaigns.commands:app", "Create, start and stop campaigns, and show their entries."
        )
    }
    kept_tables = {"point_accounts": "the points of users: one row for each"}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open the campaigns for the duration of the block."""
        async with open_campaigns(context.settings, context.database, context.valkey) as campaigns:
            context.share(campaigns)
            yield OpenCampaigns(context, campaigns)


def campaign_kinds(settings: CampaignSettings) -> Kinds:
    """Return the built-in kinds and those of the settings. Raises `InvalidSettings`."""
    from tidegate.systems.campaigns.kinds import FirstCome, Kinds, Points, load_kind

    return Kinds([FirstCome(), Points(), *(load_kind(place) for place in settings.kinds)])


@asynccontextmanager
async def open_campaigns(settings: Settings, database: Database, valkey: Valkey) -> AsyncGenerator[Campaigns]:
    """Open the campaigns of an installation for the duration of the block."""
    from tidegate.systems.campaigns.service import Campaigns
    from tidegate.systems.campaigns.settings import CampaignSettings

    ours = settings.section(CampaignSettings)
    campaigns = Campaigns(valkey, database, ours, kinds=campaign_kinds(ours).names)
    try:
        yield campaigns
    finally:
        await campaigns.close()


class OpenCampaigns(OpenSystem):
    """What campaigns contribute to a process."""

    def __init__(self, context: Context, campaigns: Campaigns) -> None:
        from tidegate.systems.campaigns.settings import CampaignSettings

        self._context, self._settings = context, context.section(CampaignSettings)
        self.campaigns = campaigns

    def workers(self) -> Mapping[str, Service]:
        """Return the service that decides entries, unless the settings disable it."""
        if not self._settings.enabled:
            return {}
        return {"campaigns": self.worker()}

    def worker(self) -> CampaignWorker:
        """Return a new worker. A process must not run more than one."""
        from tidegate.systems.campaigns.decider import ConsumerContext
        from tidegate.systems.campaigns.worker import CampaignWorker

        context = self._context
        consumer_context = ConsumerContext(
            context.valkey,
            context.database,
            context.owner,
            campaign_kinds(self._settings),
            self._settings,
            on_decided=self.campaigns.result_feed.decided,
        )
        return CampaignWorker(consumer_context, self.campaigns.installer)

    def recoverable(self) -> Sequence[RecoverableWork]:
        """Return the recovery of entries and campaigns that dead processes held."""
        from tidegate.systems.campaigns.recovery import RecoverableCampaigns

        context = self._context
        return [RecoverableCampaigns(context.valkey, context.membership, self._settings, context.database.clock)]

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Return the rule that deletes campaigns that ended long ago."""
        from tidegate.systems.campaigns.installation import CampaignRetention

        return [CampaignRetention(self._context.valkey, self._context.database, self._settings.kept)]

    def api(self, http: HttpContext) -> Api:
        """Return the routes under `/v1/campaigns`."""
        from tidegate.systems.campaigns.api.routes import campaign_api

        return campaign_api(self.campaigns, http)

    def topics(self) -> Sequence[Topic]:
        """Return the dashboard topic with the first page of campaigns."""
        from tidegate.systems.campaigns.api.campaigns import CampaignFilter, CampaignPage, CampaignRoutes

        routes = CampaignRoutes(self.campaigns)

        async def read() -> CampaignPage:
            return await routes.list_campaigns(CampaignFilter())

        return [Topic("campaigns", read)]

    def dead_letters(self) -> Sequence[DeadLetterStore]:
        """Return the entries that could not be decided."""
        from tidegate.systems.campaigns.dead_letters import dead_letter_store
        from tidegate.systems.campaigns.gauges import CampaignDeadLetterCounts

        counts = CampaignDeadLetterCounts(self._context.valkey, self._context.database)
        return [dead_letter_store(self.campaigns.dead_letters, counts.read)]

    def gauges(self) -> Sequence[Gauges]:
        """Return the gauges of active campaigns, undecided entries and dead letters."""
        from tidegate.systems.campaigns.gauges import CampaignGauges

        return [CampaignGauges(self._context.valkey, self._context.database)]
