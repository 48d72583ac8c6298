"""`/v1/campaigns/{campaign}/dead`: entries that could not be decided; kept until they are replayed or discarded."""

from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import NotFound
from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route
from tidegate.systems.campaigns.api.campaigns import TAG, CampaignId, Limit
from tidegate.systems.campaigns.dead_letters import CampaignDeadLetter as Letter
from tidegate.systems.campaigns.service import Campaigns

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
