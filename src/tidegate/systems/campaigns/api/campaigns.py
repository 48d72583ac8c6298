"""`/v1/campaigns`: make, open, change, look at and stop campaigns. Entries are in `entries`."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, Meta, UnsetType

from tidegate.core.errors import Unavailable
from tidegate.http.dispatch import Given
from tidegate.http.problems import ProblemType
from tidegate.http.routes import route
from tidegate.systems.campaigns.model import (
    CAMPAIGN_ID,
    KIND_NAME,
    LARGEST_PAGE,
    MOST_POINTS,
    MOST_STOCK,
    Campaign,
    CampaignChange,
    CampaignPlan,
    CampaignStatus,
)
from tidegate.systems.campaigns.model import CampaignBacklog as CampaignLine
from tidegate.systems.campaigns.service import Campaigns
from tidegate.systems.campaigns.tables import LONGEST_CAMPAIGN, LONGEST_KIND, LONGEST_TITLE

TAG = "campaigns"
_LINES_WITHIN_S = 1.5

CampaignId = Annotated[str, Meta(min_length=1, max_length=LONGEST_CAMPAIGN, pattern=f"^{CAMPAIGN_ID}$")]
KindName = Annotated[str, Meta(min_length=1, max_length=LONGEST_KIND, pattern=f"^{KIND_NAME}$")]
Title = Annotated[str, Meta(max_length=LONGEST_TITLE, extra_json_schema={"format": "title"})]
Stock = Annotated[int, Meta(ge=0, le=MOST_STOCK)]
Total = Annotated[int, Meta(ge=1, le=MOST_STOCK)]
Points = Annotated[int, Meta(ge=0, le=MOST_POINTS)]
Limit = Annotated[int, Meta(ge=1, le=LARGEST_PAGE)]


class NewCampaign(Given, frozen=True, kw_only=True):
    """What a campaign is made of."""

    id: CampaignId
    """It stands in addresses."""
    kind: KindName
    """FIRST_COME, POINTS, or one of this installation's own."""
    total_count: Total
    """How many entries are expected; for FIRST_COME also the stock, where none is given."""
    stock: Stock | None = None
    """How many are issued at most; null: `total_count` for FIRST_COME, else any number."""
    points: Points = 0
    """What each user gets of a POINTS campaign: at least one."""
    title: Title = ""
    starts_at: datetime | None = None
    """Nobody may enter before; null: as soon as it is started."""
    ends_at: datetime | None = None
    """Nobody may enter from then on; null: when it is stopped."""

    def read(self) -> CampaignPlan:
        """As campaigns understand it; raise `InvalidArgument`."""
        return CampaignPlan(**msgspec.structs.asdict(self))


class ChangedCampaign(Given, frozen=True, kw_only=True):
    """What is to be different; what is left out stays as it is."""

    title: Title | UnsetType = UNSET
    total_count: Total | UnsetType = UNSET
    stock: Stock | UnsetType | None = UNSET
    """Not less than is issued already. Entries in line beyond it get nothing."""
    points: Points | UnsetType = UNSET
    starts_at: datetime | UnsetType | None = UNSET
    ends_at: datetime | UnsetType | None = UNSET

    def read(self) -> CampaignChange:
        """As campaigns understand it; raise `InvalidArgument`."""
        return CampaignChange(**msgspec.structs.asdict(self))


class CampaignTimes(Given, frozen=True, kw_only=True):
    """From when until when; what is left out stays as it is."""

    starts_at: datetime | None = None
    ends_at: datetime | None = None


class CampaignFilter(Given, frozen=True, kw_only=True):
    """Which campaigns, and how many."""

    after: CampaignId | None = None
    """Only campaigns with a greater id: the last one of the page before."""
    limit: Limit = 100


class ListedCampaign(Campaign, frozen=True, kw_only=True):
    """A campaign, and how much of it waits."""

    depth: int | None
    """Entries that are not decided; null where that cannot be found out now."""
    dead: int | None
    """Dead letters; likewise."""
    entered: int | None
    """The last number that the door gave; likewise."""


class CampaignDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a campaign."""

    deleted: str
    """Its id."""


class CampaignPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some campaigns, by id."""

    campaigns: list[ListedCampaign]
    next: str | None
    """The address of the next page; null where there is none."""


class CampaignRoutes:
    """The handlers."""

    def __init__(self, campaigns: Campaigns) -> None:
        self._campaigns = campaigns

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with campaigns."""
        place = "/v1/campaigns/{campaign}"
        return [
            route("GET", "/v1/campaigns", self.list_campaigns, TAG),
            route(
                "POST",
                "/v1/campaigns",
                self.create_campaign,
                TAG,
                status=201,
                headers={"Location": "The address of the campaign."},
                problems=(ProblemType.CONFLICT,),
            ),
            route("GET", place, self.show_campaign, TAG, is_chatter=True),
            route("PUT", place, self.alter_campaign, TAG),
            route("DELETE", place, self.delete_campaign, TAG, problems=(ProblemType.CONFLICT,)),
            route("POST", f"{place}/start", self.start_campaign, TAG),
            route("POST", f"{place}/stop", self.stop_campaign, TAG),
        ]

    async def list_campaigns(self, query: CampaignFilter) -> CampaignPage:
        """List campaigns, and how many entries of each wait."""
        found = await self._campaigns.page(after=query.after, limit=query.limit)
        lines = await self._lines([each.id for each in found])
        more = urlencode({"after": found[-1].id, "limit": query.limit}) if len(found) == query.limit else None
        rows = [_listed(each, line) for each, line in zip(found, lines, strict=True)]
        return CampaignPage(campaigns=rows, next=None if more is None else f"/v1/campaigns?{more}")

    async def create_campaign(self, body: NewCampaign) -> Response[Campaign]:
        """Make a campaign. Nobody may enter until it is started."""
        made = await self._campaigns.create(body.read())
        return Response(made, headers={"Location": f"/v1/campaigns/{made.id}"})

    async def delete_campaign(self, campaign: CampaignId) -> CampaignDeleted:
        """Delete a campaign that is over, with its entries and dead letters. Points stay. It cannot be undone."""
        await self._campaigns.delete(campaign)
        return CampaignDeleted(deleted=campaign)

    async def show_campaign(self, campaign: CampaignId) -> CampaignStatus:
        """Show one campaign: what it is, how many are in line, and who works on it."""
        return await self._campaigns.status(campaign)

    async def alter_campaign(self, campaign: CampaignId, body: ChangedCampaign) -> Campaign:
        """Change some of a campaign, also while it runs. What is left out stays as it is."""
        return await self._campaigns.alter(campaign, body.read())

    async def start_campaign(self, campaign: CampaignId, body: CampaignTimes = CampaignTimes()) -> Campaign:  # noqa: B008 - it is frozen
        """Let people enter, from the start until the end. Twice is harmless."""
        return await self._campaigns.start(campaign, body.starts_at, body.ends_at)

    async def stop_campaign(self, campaign: CampaignId) -> Campaign:
        """Let nobody enter any more. What was accepted is still decided. Twice is harmless."""
        return await self._campaigns.stop(campaign)

    async def _lines(self, idents: Sequence[str]) -> Sequence[CampaignLine | None]:
        """A server that is away, or hangs, costs the figures and not the list."""
        try:
            async with asyncio.timeout(_LINES_WITHIN_S):
                return await self._campaigns.lines(idents)
        except (Unavailable, TimeoutError):
            return [None] * len(idents)


def _listed(campaign: Campaign, line: CampaignLine | None) -> ListedCampaign:
    depth, dead, entered = (None, None, None) if line is None else (line.depth, line.dead, line.entered)
    return ListedCampaign(**msgspec.structs.asdict(campaign), depth=depth, dead=dead, entered=entered)
