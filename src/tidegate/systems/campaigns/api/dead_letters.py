"""`/v1/campaigns/{campaign}/dead`: entries that nobody could decide, until somebody replays or discards them."""

from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import NotFound
from tidegate.http.dispatch import Given
from tidegate.http.routes import route
from tidegate.systems.campaigns.api.campaigns import TAG, CampaignId, Limit
from tidegate.systems.campaigns.dead_letters import CampaignDeadLetter as Letter
from tidegate.systems.campaigns.service import Campaigns

LetterId = Annotated[str, Meta(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$")]


class DeadEntryFilter(Given, frozen=True, kw_only=True):
    """Which letters, and how many."""

    after: LetterId | None = None
    """Only letters behind this one."""
    limit: Limit = 50


class DeadEntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some letters, the oldest first."""

    letters: list[Letter]
    next: str | None
    """The address of the next page; null where there is none."""


class DeadEntrySettled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a letter."""

    id: str
    outcome: Literal["replayed", "discarded"]


class DeadEntriesReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries are decided after all."""

    replayed: int


class DeadEntryRoutes:
    """The handlers."""

    def __init__(self, campaigns: Campaigns) -> None:
        self._campaigns = campaigns

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with them."""
        place = "/v1/campaigns/{campaign}/dead"
        return [
            route("GET", place, self.list_dead_entries, TAG),
            route("POST", f"{place}/replay", self.replay_dead_entries, TAG),
            route("POST", f"{place}/{{letter_id}}/replay", self.replay_dead_entry, TAG),
            route("DELETE", f"{place}/{{letter_id}}", self.discard_dead_entry, TAG),
        ]

    async def list_dead_entries(self, campaign: CampaignId, query: DeadEntryFilter) -> DeadEntryPage:
        """List entries that nobody could decide, and why."""
        page = await self._campaigns.dead(campaign, after=query.after, limit=query.limit)
        more = None if page.next_after is None else urlencode({"after": page.next_after, "limit": query.limit})
        link = None if more is None else f"/v1/campaigns/{campaign}/dead?{more}"
        return DeadEntryPage(letters=page.letters, next=link)

    async def replay_dead_entries(self, campaign: CampaignId) -> DeadEntriesReplayed:
        """Have all that are dead letters now decided after all, under their old numbers."""
        letters = await self._campaigns.dead_ids(campaign)
        return DeadEntriesReplayed(replayed=await self._campaigns.replay(campaign, letters) if letters else 0)

    async def replay_dead_entry(self, campaign: CampaignId, letter_id: LetterId) -> DeadEntrySettled:
        """Have an entry decided after all, under its old number."""
        if not await self._campaigns.replay(campaign, [letter_id]):
            raise NotFound("dead letter", letter_id)
        return DeadEntrySettled(id=letter_id, outcome="replayed")

    async def discard_dead_entry(self, campaign: CampaignId, letter_id: LetterId) -> DeadEntrySettled:
        """Give an entry up for good. Its place is free, and its user may enter again."""
        if not await self._campaigns.discard(campaign, [letter_id]):
            raise NotFound("dead letter", letter_id)
        return DeadEntrySettled(id=letter_id, outcome="discarded")
