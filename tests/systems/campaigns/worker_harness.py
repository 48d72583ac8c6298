"""Campaigns that are worked on: several instances in one process, each as a process of a deployment would be."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from tests.systems.campaigns.harness import CAMPAIGN, CampaignHarness, harness_at
from tests.waiting import PATIENCE_S, look_again
from tidegate.primitives.membership import Membership
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.campaign_store import campaign_entries
from tidegate.systems.campaigns.decider import ConsumerContext
from tidegate.systems.campaigns.kinds import CampaignKind, FirstCome, Kinds, Points
from tidegate.systems.campaigns.model import Campaign, CampaignEntry, CampaignStatus, EntryOutcome, EntryVerdict
from tidegate.systems.campaigns.recovery import RecoverableCampaigns
from tidegate.systems.campaigns.worker import CampaignWorker

FAST: dict[str, Any] = {
    "poll_interval_ms": 10,
    "idle_timeout_seconds": 0.2,
    "retry_first_pause": timedelta(milliseconds=1),
    "retry_longest_pause": timedelta(milliseconds=20),
}


class Picky:
    """Refuses users called no, and falls over those called poison."""

    kind = "PICKY"

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:
        self.asked.update(entry.user for entry in entries)
        for entry in entries:
            if entry.user.startswith("poison"):
                raise ZeroDivisionError(f"{entry.user} is poison")
        return [
            EntryOutcome(verdict=EntryVerdict.REFUSED, reason="it said no")
            if entry.user.startswith("no")
            else EntryOutcome(verdict=EntryVerdict.ISSUED)
            for entry in entries
        ]


@dataclass
class Instance:
    """One process's part."""

    owner: str
    manager: CampaignWorker
    stopping: asyncio.Event
    running: asyncio.Task[None]

    async def stop(self) -> None:
        """In good order."""
        self.stopping.set()
        await self.running


@dataclass
class WorkerHarness(CampaignHarness):
    """A shop and those who work in it."""

    picky: Picky = field(default_factory=Picky)
    told: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    instances: list[Instance] = field(default_factory=list[Instance])

    def manager(self, owner: str, *kinds: CampaignKind, valkey: Valkey | None = None) -> CampaignWorker:
        context = ConsumerContext(
            valkey or self.valkey,
            self.database,
            owner,
            Kinds([FirstCome(), Points(), self.picky, *kinds]),
            self.campaigns.settings,
            on_decided=self._decided,
        )
        return CampaignWorker(context, self.campaigns.installer)

    async def instance(self, owner: str = "one", *kinds: CampaignKind) -> Instance:
        """One that listens for calls."""
        manager, stopping = self.manager(owner, *kinds), asyncio.Event()
        instance = Instance(owner, manager, stopping, asyncio.create_task(manager.run(stopping)))
        self.instances.append(instance)
        return instance

    def recoverable(self) -> RecoverableCampaigns:
        membership = Membership(self.valkey, self.valkey.unit("all"), "leader", self.database.clock)
        return RecoverableCampaigns(self.valkey, membership, self.campaigns.settings, self.database.clock)

    async def enter(self, *users: str, campaign: str = CAMPAIGN) -> None:
        for user in users:
            answer = await self.campaigns.enter(campaign, user)
            assert answer.answer == "ACCEPTED", (user, answer)

    async def rows(self, campaign: str = CAMPAIGN) -> dict[str, tuple[str, int]]:
        """What SQL says: the outcome and the number of each user."""
        return await self.database.read(_rows, campaign)

    async def status(self, campaign: str = CAMPAIGN) -> CampaignStatus:
        return await self.campaigns.status(campaign)

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await is_so():
                await look_again()

    async def until_decided(self, count: int, campaign: str = CAMPAIGN) -> None:
        """Until SQL knows of so many, and nothing is in line."""

        async def is_so() -> bool:
            status = await self.status(campaign)
            return status.depth == 0 and len(await self.rows(campaign)) == count

        await self.until(is_so)

    async def until_gone(self, campaign: str = CAMPAIGN) -> None:
        """Until nobody serves it, and its stream is gone."""

        async def is_so() -> bool:
            exists = await self.valkey.execute("EXISTS", self.keys(campaign)["stream"])
            return not exists and not (await self.status(campaign)).processes

        await self.until(is_so)

    def _decided(self, campaign: str, users: Collection[str]) -> None:
        self.told += [(campaign, user) for user in users]


@asynccontextmanager
async def worker_harness_at(url: str, valkey: Valkey, **settings: Any) -> AsyncGenerator[WorkerHarness]:
    """Works on this database, which has all tables; whoever still works at the end is stopped."""
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(harness_at(url, valkey, **(FAST | settings)))
        harness.campaigns._kinds = ["FIRST_COME", "POINTS", "PICKY"]  # pyright: ignore[reportPrivateUsage]
        workers = WorkerHarness(harness.valkey, harness.database, harness.campaigns)
        try:
            yield workers
        finally:
            await asyncio.gather(*(each.stop() for each in workers.instances), return_exceptions=True)


def _rows(tx: Transaction, campaign: str) -> dict[str, tuple[str, int]]:
    c = campaign_entries.c
    found = tx.execute(select(c.user_id, c.outcome, c.number).where(c.campaign == campaign))
    return {user: (outcome, number) for user, outcome, number in found}
