"""Campaigns as everybody sees them: made, opened, entered, watched, stopped."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tidegate.core.arguments import require_at_most, require_positive, require_whole
from tidegate.core.errors import InvalidArgument
from tidegate.runtime.change_feed import Watch
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import records, scripts
from tidegate.systems.campaigns.campaign import (
    FIRST_COME,
    LARGEST_PAGE,
    MOST_POINTS,
    MOST_STOCK,
    POINTS,
    Campaign,
    CampaignPlan,
    Decided,
    Entered,
    Result,
    require_campaign,
    require_title,
    require_user,
)
from tidegate.systems.campaigns.dead_letters import CampaignLetters, LetterPage
from tidegate.systems.campaigns.entry_service import EntryService
from tidegate.systems.campaigns.install import Installer
from tidegate.systems.campaigns.keys import GROUP, campaign_keys
from tidegate.systems.campaigns.removal import CampaignRemover
from tidegate.systems.campaigns.result_feed import ResultFeed
from tidegate.systems.campaigns.results import Results
from tidegate.systems.campaigns.settings import CampaignSettings


class CampaignChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different; what is left out stays as it is."""

    title: str | UnsetType = UNSET
    total_count: int | UnsetType = UNSET
    stock: int | UnsetType | None = UNSET
    points: int | UnsetType = UNSET
    starts_at: datetime | UnsetType | None = UNSET
    ends_at: datetime | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.title, UnsetType):
            require_title(self.title)
        if not isinstance(self.total_count, UnsetType):
            require_whole("total_count", self.total_count, least=1, most=MOST_STOCK)
        if self.stock is not None and not isinstance(self.stock, UnsetType):
            require_whole("stock", self.stock, least=0, most=MOST_STOCK)
        if not isinstance(self.points, UnsetType):
            require_whole("points", self.points, least=0, most=MOST_POINTS)


class CampaignStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a campaign stands at one moment."""

    campaign: Campaign
    depth: int
    """Entries that are not decided."""
    pending: int
    """Of these, in the hands of a consumer."""
    lag: int
    """Of these, not read by anybody yet."""
    dead: int
    """Dead letters; not part of the depth."""
    hands: list[str]
    """The processes that work on it."""
    consumers: int
    """Theirs, all together, where all have the settings of this one."""
    is_called: bool
    """Whether it calls for a process that works on it."""
    idle_ms: int | None
    """Since the last entry; None: there was none."""
    entered: int
    """The last number that the door gave."""
    remembered: int
    """Users whom the door knows."""
    is_installed: bool
    """Whether the server knows the campaign; it learns it with the first entry."""


class CampaignLine(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a campaign waits."""

    depth: int
    """Entries that are not decided."""
    dead: int
    """Dead letters."""
    entered: int
    """The last number that the door gave."""


class Campaigns:
    """The campaigns of an installation. SQL says what each is; the server is told whenever that changes."""

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
        self.installer = Installer(valkey, database)
        self.valkey, self.database, self._kinds = valkey, database, kinds
        self._entry_service = EntryService(valkey, self.installer.restore, self.settings, database.clock)
        self._results = Results(valkey, database, self.result_feed)
        self._letters = CampaignLetters(valkey, self.result_feed, database.clock)

    async def create(self, plan: CampaignPlan) -> Campaign:
        """Make a campaign that nobody may enter yet; raise `CampaignExists`."""
        if plan.kind not in self._kinds:
            raise InvalidArgument("kind", plan.kind, f"must be one of {', '.join(sorted(self._kinds))}")
        return await self.database.transaction(records.create, plan)

    async def start(self, ident: str, starts_at: datetime | None = None, ends_at: datetime | None = None) -> Campaign:
        """Open it from its start until its end; a time that is not given stays, and a start that never was is now.

        Twice is harmless. Where the server is away that is raised, and SQL has it: do it again.
        """
        await self.database.transaction(records.start, require_campaign(ident), starts_at, ends_at)
        return await self.installer.install(ident)

    async def stop(self, ident: str) -> Campaign:
        """Let nobody enter any more; what was accepted is still decided. Twice is harmless."""
        await self.database.transaction(records.stop, require_campaign(ident))
        return await self.installer.install(ident)

    async def alter(self, ident: str, change: CampaignChange) -> Campaign:
        """Change some of it. The stock can grow, or shrink to what is issued; those in line beyond it get nothing."""
        values = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}
        await self.database.transaction(_alter, require_campaign(ident), values)
        return await self.installer.install(ident)

    async def delete(self, ident: str) -> None:
        """Delete a campaign that is over, with its entries and dead letters. See `CampaignRemover`."""
        await CampaignRemover(self.valkey, self.database).remove(require_campaign(ident))

    async def get(self, ident: str) -> Campaign:
        """One campaign; raise `NotFound`."""
        return await self.database.read(records.get, require_campaign(ident))

    async def page(self, *, after: str | None = None, limit: int = 100) -> list[Campaign]:
        """Campaigns by id, those behind `after`."""
        return await self.database.read(records.page, after, _require_limit(limit))

    async def status(self, ident: str) -> CampaignStatus:
        """How it stands."""
        campaign = await self.get(ident)
        keys, now_ms = campaign_keys(self.valkey, ident), self.database.clock.pinned_ms
        depth, pending, dead, known, hands, called, idle_ms, book = await scripts.status(
            self.valkey, campaign=ident, group=GROUP, now_ms=now_ms, **keys
        )
        return CampaignStatus(
            campaign=campaign,
            depth=depth,
            pending=pending,
            lag=max(depth - pending, 0),
            dead=dead,
            hands=sorted(owner.decode() for owner in hands),
            consumers=len(hands) * self.settings.consumers_for(campaign.total_count),
            is_called=bool(called),
            idle_ms=None if idle_ms < 0 else idle_ms,
            entered=book[1] if book else 0,
            remembered=known,
            is_installed=bool(book),
        )

    async def lines(self, idents: Sequence[str]) -> list[CampaignLine]:
        """How much of each waits: one question for all."""
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
            CampaignLine(depth=depth, dead=dead, entered=int(entered or 0))
            for depth, dead, entered in zip(replies[::3], replies[1::3], replies[2::3], strict=True)
        ]

    async def enter(self, ident: str, user: str, key: str | None = None, data: Any = None) -> Entered:
        """See `EntryService.enter`."""
        return await self._entry_service.enter(ident, user, key, data)

    def ask(self, ident: str, user: str, key: str | None = None, data: Any = None) -> asyncio.Future[Entered]:
        """See `EntryService.ask`."""
        return self._entry_service.ask(ident, user, key, data)

    async def result(self, ident: str, user: str) -> Result:
        """See `Results.of`."""
        return await self._results.of(ident, user)

    def watch(self, ident: str, user: str) -> AbstractAsyncContextManager[Watch]:
        """See `Results.watch`."""
        return self._results.watch(ident, user)

    async def entries(self, ident: str, *, after: tuple[int, str] | None = None, limit: int = 100) -> Sequence[Decided]:
        """Decided entries by number; those behind the number and user `after`, where no user is before all of them."""
        if after is not None and after[1]:
            after = after[0], require_user(after[1])
        return await self.database.read(_entries, require_campaign(ident), after, _require_limit(limit))

    async def points_of(self, user: str) -> int:
        """What all campaigns have given to a user."""
        return await self.database.read(records.points_of, require_user(user))

    async def dead(self, ident: str, *, after: str | None = None, limit: int = 100) -> LetterPage:
        """See `CampaignLetters.page`."""
        await self.get(ident)
        return await self._letters.page(ident, after=after, limit=_require_limit(limit))

    async def dead_ids(self, ident: str) -> list[str]:
        """See `CampaignLetters.ids`."""
        await self.get(ident)
        return await self._letters.ids(ident)

    async def replay(self, ident: str, letter_ids: Sequence[str]) -> int:
        """See `CampaignLetters.replay`."""
        await self.get(ident)
        return await self._letters.replay(ident, letter_ids)

    async def discard(self, ident: str, letter_ids: Sequence[str]) -> int:
        """See `CampaignLetters.discard`."""
        await self.get(ident)
        return await self._letters.discard(ident, letter_ids)

    async def close(self) -> None:
        """Answer those at the door, and tell what is left to tell."""
        await self._entry_service.close()
        await self.result_feed.close()


def _alter(tx: Transaction, ident: str, values: dict[str, Any]) -> Campaign:
    campaign = records.locked(tx, ident)
    if campaign.kind == FIRST_COME and values.get("stock", 0) is None:
        raise InvalidArgument("stock", None, "a FIRST_COME campaign has one")
    if campaign.kind == POINTS and values.get("points", 1) == 0:
        raise InvalidArgument("points", 0, "a POINTS campaign gives at least one")
    return records.alter(tx, ident, values)


def _entries(tx: Transaction, ident: str, after: tuple[int, str] | None, limit: int) -> list[Decided]:
    records.get(tx, ident)
    return records.entries(tx, ident, after, limit)


def _require_limit(limit: int) -> int:
    require_positive("limit", limit)
    require_at_most("limit", limit, LARGEST_PAGE)
    return limit
