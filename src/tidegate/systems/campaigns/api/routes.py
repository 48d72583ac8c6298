"""Builds all routes of campaigns."""

from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Role
from tidegate.http.raw_handlers import Admission, Application
from tidegate.system import Api, HttpContext
from tidegate.systems.campaigns.api.campaigns import CampaignRoutes
from tidegate.systems.campaigns.api.dead_letters import DeadEntryRoutes
from tidegate.systems.campaigns.api.entries import EntryRoutes
from tidegate.systems.campaigns.api.fast_entry import PREFIX, VARYING, FastEntry
from tidegate.systems.campaigns.service import Campaigns


def campaign_api(campaigns: Campaigns, http: HttpContext) -> Api:
    """All routes of campaigns, with the raw handler of entries."""
    entries = EntryRoutes(campaigns, http.settings)
    routes = [CampaignRoutes(campaigns), entries, DeadEntryRoutes(campaigns)]
    admission = Admission(Authenticator(http.access, ()), Role.OPERATE, varying=VARYING)
    largest_body = http.settings.largest_body

    def fast_entry(application: Application) -> FastEntry:
        return FastEntry(application, campaigns, admission, largest_body=largest_body)

    return Api(
        routes=[route for each in routes for route in each.routes()],
        close=entries.close,
        raw={PREFIX: fast_entry},
    )
