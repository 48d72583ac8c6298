"""`/v1/campaigns`: create, open, change, show and stop campaigns, and their dead letters.

Dead letters are entries that could not be decided; they are kept until they are replayed or discarded. Entries are in
`routes`.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, Meta, UnsetType

from tidegate.core.errors import NotFound, Unavailable
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType
from tidegate.http.routes import route
from tidegate.systems.campaigns.campaign_store import LONGEST_CAMPAIGN, LONGEST_KIND, LONGEST_TITLE
from tidegate.systems.campaigns.dead_letters import CampaignDeadLetter as Letter
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

TAG = "campaigns"
_LINES_WITHIN_S = 1.5

CampaignId = Annotated[str, Meta(min_length=1, max_length=LONGEST_CAMPAIGN, pattern=f"^{CAMPAIGN_ID}$")]
KindName = Annotated[str, Meta(min_length=1, max_length=LONGEST_KIND, pattern=f"^{KIND_NAME}$")]
Title = Annotated[str, Meta(max_length=LONGEST_TITLE, extra_json_schema={"format": "title"})]
Stock = Annotated[int, Meta(ge=0, le=MOST_STOCK)]
Total = Annotated[int, Meta(ge=1, le=MOST_STOCK)]
Points = Annotated[int, Meta(ge=0, le=MOST_POINTS)]
Limit = Annotated[int, Meta(ge=1, le=LARGEST_PAGE)]


class NewCampaign(RequestInput, frozen=True, kw_only=True):
    """The settings of a new campaign."""

    id: CampaignId
    """The id, which is part of URLs."""
    kind: KindName
    """FIRST_COME, POINTS, or a kind that this deployment adds."""
    total_count: Total
    """Expected number of entries; for FIRST_COME also the stock, unless `stock` is set."""
    stock: Stock | None = None
    """Maximum number of issued entries; null: `total_count` for FIRST_COME, no limit otherwise."""
    points: Points = 0
    """Points per user of a POINTS campaign: at least one."""
    title: Title = ""
    starts_at: datetime | None = None
    """Entries before this time are refused; null: the campaign opens when it is started."""
    ends_at: datetime | None = None
    """Entries from this time on are refused; null: the campaign ends when it is stopped."""

    def read(self) -> CampaignPlan:
        """Convert to a `CampaignPlan`; raises `InvalidArgument`."""
        return CampaignPlan(**msgspec.structs.asdict(self))


class ChangedCampaign(RequestInput, frozen=True, kw_only=True):
    """Changes of a campaign; omitted fields stay as they are."""

    title: Title | UnsetType = UNSET
    total_count: Total | UnsetType = UNSET
    stock: Stock | UnsetType | None = UNSET
    """Not less than the number issued already. Waiting entries beyond it are sold out."""
    points: Points | UnsetType = UNSET
    starts_at: datetime | UnsetType | None = UNSET
    ends_at: datetime | UnsetType | None = UNSET

    def read(self) -> CampaignChange:
        """Convert to a `CampaignChange`; raises `InvalidArgument`."""
        return CampaignChange(**msgspec.structs.asdict(self))


class CampaignTimes(RequestInput, frozen=True, kw_only=True):
    """New start and end; omitted fields stay as they are."""

    starts_at: datetime | None = None
    ends_at: datetime | None = None


class CampaignFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    after: CampaignId | None = None
    """Only campaigns with a greater id: the last id of the previous page."""
    limit: Limit = 100


class ListedCampaign(Campaign, frozen=True, kw_only=True):
    """A campaign with the state of its line."""

    depth: int | None
    """Number of undecided entries; null while the server is unavailable."""
    dead: int | None
    """Number of dead letters; null while the server is unavailable."""
    entered: int | None
    """The last assigned entry number; null while the server is unavailable."""


class CampaignDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a deletion."""

    deleted: str
    """The id of the deleted campaign."""


class CampaignPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of campaigns, by id."""

    campaigns: list[ListedCampaign]
    next: str | None
    """The URL of the next page; null on the last one."""


class CampaignRoutes:
    """Routes that create, change, show and stop campaigns."""

    def __init__(self, campaigns: Campaigns) -> None:
        self._campaigns = campaigns

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of campaigns."""
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
            route("GET", place, self.show_campaign, TAG, is_high_volume=True),
            route("PUT", place, self.alter_campaign, TAG),
            route("DELETE", place, self.delete_campaign, TAG, problems=(ProblemType.CONFLICT,)),
            route("POST", f"{place}/start", self.start_campaign, TAG),
            route("POST", f"{place}/stop", self.stop_campaign, TAG),
        ]

    async def list_campaigns(self, query: CampaignFilter) -> CampaignPage:
        """List campaigns, with the number of undecided entries of each."""
        found = await self._campaigns.page(after=query.after, limit=query.limit)
        lines = await self._lines([each.id for each in found])
        more = urlencode({"after": found[-1].id, "limit": query.limit}) if len(found) == query.limit else None
        rows = [_listed(each, line) for each, line in zip(found, lines, strict=True)]
        return CampaignPage(campaigns=rows, next=None if more is None else f"/v1/campaigns?{more}")

    async def create_campaign(self, body: NewCampaign) -> Response[Campaign]:
        """Create a campaign. Entries are refused until it is started."""
        made = await self._campaigns.create(body.read())
        return Response(made, headers={"Location": f"/v1/campaigns/{made.id}"})

    async def delete_campaign(self, campaign: CampaignId) -> CampaignDeleted:
        """Delete an ended campaign with its entries and dead letters. Points stay. This cannot be undone."""
        await self._campaigns.delete(campaign)
        return CampaignDeleted(deleted=campaign)

    async def show_campaign(self, campaign: CampaignId) -> CampaignStatus:
        """Show one campaign: its settings, the state of its line, and the processes that decide its entries."""
        return await self._campaigns.status(campaign)

    async def alter_campaign(self, campaign: CampaignId, body: ChangedCampaign) -> Campaign:
        """Change a campaign, also while it runs. Omitted fields stay as they are."""
        return await self._campaigns.alter(campaign, body.read())

    async def start_campaign(self, campaign: CampaignId, body: CampaignTimes = CampaignTimes()) -> Campaign:  # noqa: B008 - it is frozen
        """Open the campaign from its start to its end. Repeating it is harmless."""
        return await self._campaigns.start(campaign, body.starts_at, body.ends_at)

    async def stop_campaign(self, campaign: CampaignId) -> Campaign:
        """Refuse further entries. Accepted entries are still decided. Repeating it is harmless."""
        return await self._campaigns.stop(campaign)

    async def _lines(self, idents: Sequence[str]) -> Sequence[CampaignLine | None]:
        """Read the lines; without counts if the server is unavailable or too slow, so that the list is still shown."""
        try:
            async with asyncio.timeout(_LINES_WITHIN_S):
                return await self._campaigns.lines(idents)
        except (Unavailable, TimeoutError):
            return [None] * len(idents)


def _listed(campaign: Campaign, line: CampaignLine | None) -> ListedCampaign:
    depth, dead, entered = (None, None, None) if line is None else (line.depth, line.dead, line.entered)
    return ListedCampaign(**msgspec.structs.asdict(campaign), depth=depth, dead=dead, entered=entered)


LetterId = Annotated[str, Meta(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$")]


class DeadEntryFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    after: LetterId | None = None
    """Only letters after this one."""
    limit: Limit = 50


class DeadEntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of dead letters, oldest first."""

    letters: list[Letter]
    next: str | None
    """The URL of the next page; null on the last one."""


class DeadEntrySettled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying or discarding a dead letter."""

    id: str
    outcome: Literal["replayed", "discarded"]


class DeadEntriesReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying all dead letters."""

    replayed: int


class DeadEntryRoutes:
    """Routes of dead letters."""

    def __init__(self, campaigns: Campaigns) -> None:
        self._campaigns = campaigns

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of dead letters."""
        place = "/v1/campaigns/{campaign}/dead"
        return [
            route("GET", place, self.list_dead_entries, TAG),
            route("POST", f"{place}/replay", self.replay_dead_entries, TAG),
            route("POST", f"{place}/{{letter_id}}/replay", self.replay_dead_entry, TAG),
            route("DELETE", f"{place}/{{letter_id}}", self.discard_dead_entry, TAG),
        ]

    async def list_dead_entries(self, campaign: CampaignId, query: DeadEntryFilter) -> DeadEntryPage:
        """List entries that could not be decided, with the reason."""
        page = await self._campaigns.dead(campaign, after=query.after, limit=query.limit)
        more = None if page.next_after is None else urlencode({"after": page.next_after, "limit": query.limit})
        link = None if more is None else f"/v1/campaigns/{campaign}/dead?{more}"
        return DeadEntryPage(letters=page.letters, next=link)

    async def replay_dead_entries(self, campaign: CampaignId) -> DeadEntriesReplayed:
        """Replay all present dead letters; the entries keep their numbers."""
        letters = await self._campaigns.dead_ids(campaign)
        return DeadEntriesReplayed(replayed=await self._campaigns.replay(campaign, letters) if letters else 0)

    async def replay_dead_entry(self, campaign: CampaignId, letter_id: LetterId) -> DeadEntrySettled:
        """Replay one dead letter; the entry keeps its number."""
        if not await self._campaigns.replay(campaign, [letter_id]):
            raise NotFound("dead letter", letter_id)
        return DeadEntrySettled(id=letter_id, outcome="replayed")

    async def discard_dead_entry(self, campaign: CampaignId, letter_id: LetterId) -> DeadEntrySettled:
        """Discard an entry permanently. Its place becomes free, and its user may enter again."""
        if not await self._campaigns.discard(campaign, [letter_id]):
            raise NotFound("dead letter", letter_id)
        return DeadEntrySettled(id=letter_id, outcome="discarded")
