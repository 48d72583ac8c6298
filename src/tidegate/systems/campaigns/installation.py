"""Installs a campaign on the Valkey server as it is in SQL, also after the server lost it.

Each installation has a new epoch from SQL. Of two concurrent installations the later one stays, and a message of an
older epoch is never confused with a newer one of the same number.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from tidegate.core.clock import milliseconds
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store, scripts
from tidegate.systems.campaigns.campaign_store import IssuedUser
from tidegate.systems.campaigns.model import Campaign, CampaignState
from tidegate.systems.campaigns.scripts import campaign_keys, remembered

log = get_logger(__name__)
_USERS_PER_CALL = 1000
"""Users per call of the script; a longer call would delay other commands."""
REMEMBERED_FOR = timedelta(days=7)
"""How long after a campaign's end the server keeps it and its users. SQL keeps it for `campaigns.kept`."""


class CampaignInstaller:
    """Installs campaigns. Concurrent restorations of the same campaign are merged."""

    def __init__(self, valkey: Valkey, database: Database) -> None:
        self._valkey, self._database = valkey, database
        self._under_way: dict[str, asyncio.Task[Campaign]] = {}

    async def install(self, campaign: str) -> Campaign:
        """Install the campaign as it is in SQL. Raises `NotFound`.

        For callers that changed it: an installation in progress may have read the old state.
        """
        # A new epoch for each installation: of two concurrent ones, the server keeps the higher.
        installed, highest = await self._database.transaction(campaign_store.begin_epoch, campaign)
        # Without counters first: a server that knows the campaign keeps its own, which include entries
        # that SQL has not decided.
        if await self._tell(installed, counters=()) == b"lost":
            await self._restore(installed, highest)
        return installed

    async def restore(self, campaign: str) -> Campaign:
        """Install a campaign that the server does not know. Concurrent callers share one installation."""
        task = self._under_way.get(campaign)
        if task is None:
            task = self._under_way[campaign] = asyncio.create_task(self._install_if_there(campaign))
            task.add_done_callback(lambda _: self._under_way.pop(campaign))
        # A cancelled caller must not cancel the installation of the others.
        return await asyncio.shield(task)

    async def _install_if_there(self, campaign: str) -> Campaign:
        """A made-up campaign id costs a read, and no write transaction."""
        await self._database.read(campaign_store.get, campaign)
        return await self.install(campaign)

    async def _restore(self, campaign: Campaign, highest: int) -> None:
        """Send the accepted users first, and the counters last: users cannot enter before."""
        counters, after, told = (campaign.issued, highest), None, 0
        if self._is_long_over(campaign):  # users cannot enter; starting it again installs everything
            await self._tell(campaign, counters=counters)
            return
        while rows := await self._database.read(campaign_store.issued_users, campaign.id, after, _USERS_PER_CALL):
            # Another installation with a later epoch is on its way; it sends the users itself.
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
        """Send rules, counters and known users of a campaign to the Valkey server; return the script's reply."""
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
