"""The campaigns of an installation: create, start, change, stop, enter, watch and delete them."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from tidegate.core.arguments import require_at_most, require_positive
from tidegate.core.errors import InvalidArgument
from tidegate.runtime.change_feed import Watch
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store, scripts
from tidegate.systems.campaigns.dead_letters import CampaignDeadLetterPage, CampaignDeadLetters
from tidegate.systems.campaigns.entry_service import EntryService
from tidegate.systems.campaigns.installation import CampaignDeletion, CampaignInstaller
from tidegate.systems.campaigns.model import (
    FIRST_COME,
    LARGEST_PAGE,
    POINTS,
    Campaign,
    CampaignBacklog,
    CampaignChange,
    CampaignPlan,
    CampaignStatus,
    DecidedEntry,
    EntryReceipt,
    EntryResult,
    require_campaign,
    require_user,
)
from tidegate.systems.campaigns.results import ResultFeed, Results
from tidegate.systems.campaigns.scripts import GROUP, campaign_keys
from tidegate.systems.campaigns.settings import CampaignSettings


class Campaigns:
    """The campaigns of an installation. SQL has the state of each; every change is installed on the server.

    Example:
        async with open_campaigns(settings, database, valkey) as campaigns:
            await campaigns.create(CampaignPlan(id="autumn", kind="FIRST_COME", total_count=1000))
            await campaigns.start("autumn")
            receipt = await campaigns.enter("autumn", "ada")
    """

    def __init__(
        self,
        valkey: Valkey,
        database: Database,
        settings: CampaignSettings | None = None,
        *,
        kinds: Collection[str] = (FIRST_COME, POINTS),
    ) -> None:
        self.settings = settings or CampaignSettings()
        self.result_feed = ResultFeed(valkey)
        self.installer = CampaignInstaller(valkey, database)
        self.valkey, self.database, self._kinds = valkey, database, kinds
        self._entry_service = EntryService(valkey, self.installer.restore, self.settings, database.clock)
        self._results = Results(valkey, database, self.result_feed)
        self.dead_letters = CampaignDeadLetters(valkey, self.result_feed, database.clock)

    async def create(self, plan: CampaignPlan) -> Campaign:
        """Create a campaign that users cannot enter yet. Raises `CampaignExists`."""
        if plan.kind not in self._kinds:
            raise InvalidArgument("kind", plan.kind, f"must be one of {', '.join(sorted(self._kinds))}")
        return await self.database.transaction(campaign_store.create, plan)

    async def start(self, ident: str, starts_at: datetime | None = None, ends_at: datetime | None = None) -> Campaign:
        """Open a campaign from its start until its end. Times that are not given are kept; the default start is now.

        Safe to repeat. If the server is unavailable, that is raised although SQL has the change; repeat the call.
        """
        # SQL first, then the server: a failure in between is repaired by any later installation.
        await self.database.transaction(campaign_store.start, require_campaign(ident), starts_at, ends_at)
        return await self.installer.install(ident)

    async def stop(self, ident: str) -> Campaign:
        """Stop a campaign: users cannot enter any more, and accepted entries are still decided. Safe to repeat."""
        await self.database.transaction(campaign_store.stop, require_campaign(ident))
        return await self.installer.install(ident)

    async def alter(self, ident: str, change: CampaignChange) -> Campaign:
        """Change a campaign. The stock can shrink to the number of issued entries; accepted entries beyond it get
        nothing."""
        values = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}
        await self.database.transaction(_alter, require_campaign(ident), values)
        return await self.installer.install(ident)

    async def delete(self, ident: str) -> None:
        """Delete a campaign that is over, with its entries and dead letters. See `CampaignDeletion`."""
        await CampaignDeletion(self.valkey, self.database).remove(require_campaign(ident))

    async def get(self, ident: str) -> Campaign:
        """Return a campaign. Raises `NotFound`."""
        return await self.database.read(campaign_store.get, require_campaign(ident))

    async def page(self, *, after: str | None = None, limit: int = 100) -> list[Campaign]:
        """Return campaigns ordered by id, starting after `after`."""
        return await self.database.read(campaign_store.page, after, _require_limit(limit))

    async def status(self, ident: str) -> CampaignStatus:
        """Return a campaign and its current state."""
        campaign = await self.get(ident)
        keys, now_ms = campaign_keys(self.valkey, ident), self.database.clock.pinned_ms
        depth, pending, dead, known, processes, woken, idle_ms, book = await scripts.status(
            self.valkey, campaign=ident, group=GROUP, now_ms=now_ms, **keys
        )
        return CampaignStatus(
            campaign=campaign,
            depth=depth,
            pending=pending,
            lag=max(depth - pending, 0),
            dead=dead,
            processes=sorted(owner.decode() for owner in processes),
            consumers=len(processes) * self.settings.consumers_for(campaign.total_count),
            is_woken=bool(woken),
            idle_ms=None if idle_ms < 0 else idle_ms,
            entered=book[1] if book else 0,
            remembered=known,
            is_installed=bool(book),
        )

    async def lines(self, idents: Sequence[str]) -> list[CampaignBacklog]:
        """Return the undecided entries of several campaigns, in one round trip."""
        keys = [campaign_keys(self.valkey, each) for each in idents]
        questions = [
            question
            for one in keys
            for question in (("XLEN", one["stream"]), ("XLEN", one["dead"]), ("HGET", one["book"], "next"))
        ]
        replies = await self.valkey.pipeline(questions) if questions else []
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [
            CampaignBacklog(depth=depth, dead=dead, entered=int(entered or 0))
            for depth, dead, entered in zip(replies[::3], replies[1::3], replies[2::3], strict=True)
        ]

    async def enter(self, ident: str, user: str, key: str | None = None, data: Any = None) -> EntryReceipt:
        """See `EntryService.enter`."""
        return await self._entry_service.enter(ident, user, key, data)

    def ask(self, ident: str, user: str, key: str | None = None, data: Any = None) -> asyncio.Future[EntryReceipt]:
        """See `EntryService.ask`."""
        return self._entry_service.ask(ident, user, key, data)

    async def result(self, ident: str, user: str) -> EntryResult:
        """See `Results.of`."""
        return await self._results.of(ident, user)

    def watch(self, ident: str, user: str) -> AbstractAsyncContextManager[Watch]:
        """See `Results.watch`."""
        return self._results.watch(ident, user)

    async def entries(
        self, ident: str, *, after: tuple[int, str] | None = None, limit: int = 100
    ) -> Sequence[DecidedEntry]:
        """Return decided entries by number, starting after the number and user `after`; an empty user sorts first."""
        if after is not None and after[1]:
            after = after[0], require_user(after[1])
        return await self.database.read(_entries, require_campaign(ident), after, _require_limit(limit))

    async def points_of(self, user: str) -> int:
        """Return the points that all campaigns have given to a user."""
        return await self.database.read(campaign_store.points_of, require_user(user))

    async def dead(self, ident: str, *, after: str | None = None, limit: int = 100) -> CampaignDeadLetterPage:
        """See `CampaignDeadLetters.page`."""
        await self.get(ident)
        return await self.dead_letters.page(ident, after=after, limit=_require_limit(limit))

    async def dead_ids(self, ident: str) -> list[str]:
        """See `CampaignDeadLetters.ids`."""
        await self.get(ident)
        return await self.dead_letters.ids(ident)

    async def replay(self, ident: str, letter_ids: Sequence[str]) -> int:
        """See `CampaignDeadLetters.replay`."""
        await self.get(ident)
        return await self.dead_letters.replay(ident, letter_ids)

    async def discard(self, ident: str, letter_ids: Sequence[str]) -> int:
        """See `CampaignDeadLetters.discard`."""
        await self.get(ident)
        return await self.dead_letters.discard(ident, letter_ids)

    async def close(self) -> None:
        """Answer pending attempts, and publish pending results."""
        await self._entry_service.close()
        await self.result_feed.close()


def _alter(tx: Transaction, ident: str, values: dict[str, Any]) -> Campaign:
    campaign = campaign_store.locked(tx, ident)
    if campaign.kind == FIRST_COME and values.get("stock", 0) is None:
        raise InvalidArgument("stock", None, "a FIRST_COME campaign has one")
    if campaign.kind == POINTS and values.get("points", 1) == 0:
        raise InvalidArgument("points", 0, "a POINTS campaign gives at least one")
    return campaign_store.alter(tx, ident, values)


def _entries(tx: Transaction, ident: str, after: tuple[int, str] | None, limit: int) -> list[DecidedEntry]:
    campaign_store.get(tx, ident)
    return campaign_store.entries(tx, ident, after, limit)


def _require_limit(limit: int) -> int:
    require_positive("limit", limit)
    require_at_most("limit", limit, LARGEST_PAGE)
    return limit
