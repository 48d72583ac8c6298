"""All routes of campaigns."""

from tidegate.http.authentication import Door
from tidegate.system import Api, HttpContext
from tidegate.systems.campaigns.api.campaigns import CampaignRoutes
from tidegate.systems.campaigns.api.dead_letters import DeadEntryRoutes
from tidegate.systems.campaigns.api.entries import EntryRoutes
from tidegate.systems.campaigns.api.fast_entry import FastEntry
from tidegate.systems.campaigns.campaigns import Campaigns


def campaign_api(campaigns: Campaigns, http: HttpContext) -> Api:
    """All routes of campaigns, with the fast handler for entries."""
    entries = EntryRoutes(campaigns, http.settings)
    routes = [CampaignRoutes(campaigns), entries, DeadEntryRoutes(campaigns)]
    fast = FastEntry(campaigns, Door(http.access, ()), largest_body=http.settings.largest_body)
    return Api(
        endpoints=[endpoint for each in routes for endpoint in each.endpoints()],
        close=entries.close,
        fast_handlers=[fast],
    )
