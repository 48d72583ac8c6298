"""Puts a campaign on the server as SQL has it, also after the server has lost it.

Each installation has a new epoch, which SQL gives: of two at once the later one stays, and a message of an older epoch
is never taken for one of a newer that got the same number.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from tidegate.core.clock import milliseconds
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import records, scripts
from tidegate.systems.campaigns.campaign import Campaign, CampaignState
from tidegate.systems.campaigns.keys import campaign_keys, remembered
from tidegate.systems.campaigns.records import IssuedUser

log = get_logger(__name__)

_AT_ONCE = 1000
"""Users whom one script tells the door of: a long one would hold up everybody else."""
REMEMBERED_FOR = timedelta(days=7)
"""How long after a campaign's end the server knows it, and who was there; SQL knows it for `campaigns.kept`."""


class Installer:
    """Installs campaigns. Where several want the same one at the same time, it is done once for all of them."""

    def __init__(self, valkey: Valkey, database: Database) -> None:
        self._valkey, self._database = valkey, database
        self._under_way: dict[str, asyncio.Task[Campaign]] = {}

    async def install(self, campaign: str) -> Campaign:
        """Make the server know the campaign as SQL has it now; raise `NotFound` where SQL has none.

        For whoever has changed it: what is under way may have read it before.
        """
        installed, highest = await self._database.transaction(records.begin_epoch, campaign)
        if await self._tell(installed, counters=()) == b"lost":
            await self._restore(installed, highest)
        return installed

    async def restore(self, campaign: str) -> Campaign:
        """The same for whoever found that the server does not know it: one restoration is enough for all of them."""
        task = self._under_way.get(campaign)
        if task is None:
            task = self._under_way[campaign] = asyncio.create_task(self._install_if_there(campaign))
            task.add_done_callback(lambda _: self._under_way.pop(campaign))
        return await asyncio.shield(task)

    async def _install_if_there(self, campaign: str) -> Campaign:
        """Whoever makes names up at the door costs a read, and no transaction that writes."""
        await self._database.read(records.get, campaign)
        return await self.install(campaign)

    async def _restore(self, campaign: Campaign, highest: int) -> None:
        """Tell the door first whom it has let in, and then everything: nobody gets in before it is told."""
        counters, after, told = (campaign.issued, highest), None, 0
        if self._is_long_over(campaign):  # nobody gets in; whoever opens it again has everybody told
            await self._tell(campaign, counters=counters)
            return
        while rows := await self._database.read(records.issued_users, campaign.id, after, _AT_ONCE):
            if await self._tell(campaign, counters=counters, known=rows, is_last=False) == b"newer":
                return
            after, told = rows[-1], told + len(rows)
        await self._tell(campaign, counters=counters)
        if campaign.epoch > 1:
            log.warning("campaign.restored", campaign=campaign.id, epoch=campaign.epoch, users=told)

    def _is_long_over(self, campaign: Campaign) -> bool:
        ended = campaign.changed_at if campaign.state is CampaignState.STOPPED else campaign.ends_at
        return ended is not None and ended + REMEMBERED_FOR < self._database.clock.now()

    async def _tell(
        self, campaign: Campaign, *, counters: Sequence[int], known: Sequence[IssuedUser] = (), is_last: bool = True
    ) -> bytes:
        now = self._database.clock.now()
        return await scripts.install(
            self._valkey,
            rules={
                "epoch": campaign.epoch,
                "kind": campaign.kind,
                "state": campaign.state.value,
                "stock": "" if campaign.stock is None else campaign.stock,
                "total": campaign.total_count,
            },
            opens_in_ms=_ms_until(campaign.starts_at, now),
            closes_in_ms=-1 if campaign.ends_at is None else _ms_until(campaign.ends_at, now),
            counters=counters,
            known=[(row.user, remembered(row.number, row.key)) for row in known],
            forget_ms=milliseconds(REMEMBERED_FOR),
            is_last=int(is_last),
            now_ms=self._database.clock.pinned_ms,
            **campaign_keys(self._valkey, campaign.id),
        )


def _ms_until(moment: datetime | None, now: datetime) -> int:
    return 0 if moment is None else max(0, milliseconds(moment - now))
