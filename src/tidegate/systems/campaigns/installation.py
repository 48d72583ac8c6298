"""Installs campaigns on the Valkey server as they are in SQL, also after the server lost them, and deletes them.

Each installation has a new epoch from SQL. Of two concurrent installations the later one stays, and a message of an
older epoch is never confused with a newer one of the same number.

A deletion removes the entries first, then the keys, and the campaign's own row last. Its first step marks the campaign
as being deleted. From then on it is not found, it cannot be entered or started, and no campaign of the same id can be
created before its row is deleted. An interrupted deletion is finished by the same call, or by the retention rule.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from tidegate.core.clock import milliseconds
from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store, scripts
from tidegate.systems.campaigns.campaign_store import IssuedUser
from tidegate.systems.campaigns.model import Campaign, CampaignInUse, CampaignState
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
        if await self._send(installed, counters=()) == b"lost":
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
        counters, after, restored = (campaign.issued, highest), None, 0
        if self._is_long_over(campaign):  # users cannot enter; starting it again installs everything
            await self._send(campaign, counters=counters)
            return
        while rows := await self._database.read(campaign_store.issued_users, campaign.id, after, _USERS_PER_CALL):
            # Another installation with a later epoch is on its way; it sends the users itself.
            if await self._send(campaign, counters=counters, known=rows, is_last=False) == b"newer":
                return
            after, restored = rows[-1], restored + len(rows)
        await self._send(campaign, counters=counters)
        if campaign.epoch > 1:
            log.warning("campaign.restored", campaign=campaign.id, epoch=campaign.epoch, users=restored)

    def _is_long_over(self, campaign: Campaign) -> bool:
        ended = campaign.changed_at if campaign.state is CampaignState.STOPPED else campaign.ends_at
        return ended is not None and ended + REMEMBERED_FOR < self._database.clock.now()

    async def _send(
        self, campaign: Campaign, *, counters: Sequence[int], known: Sequence[IssuedUser] = (), is_last: bool = True
    ) -> bytes:
        """Send rules, counters and known users of a campaign to the Valkey server; return the script's reply.

        Users are sent in several calls; the last one has `is_last` and completes the installation.
        """
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


_ROWS_PER_TRANSACTION = 1000
"""Rows per transaction: short ones, so that other writers are not delayed."""


class CampaignDeletion:
    """Deletes campaigns that are over."""

    def __init__(self, valkey: Valkey, database: Database) -> None:
        self._valkey, self._database, self._installer = valkey, database, CampaignInstaller(valkey, database)

    async def remove(self, ident: str) -> int:
        """Delete a campaign with its entries and dead letters; return the number of deleted rows.

        Points are kept. Safe to repeat. Raises `NotFound`, or `CampaignInUse` if users can still enter or entries are
        not decided.
        """
        keys = campaign_keys(self._valkey, ident)
        with suppress(NotFound):  # an earlier deletion was interrupted after it had closed the campaign
            await self._require_closed(ident)
        # The mark comes before anything is deleted: an interrupted deletion can only be continued,
        # and is found by its state.
        await self._database.transaction(campaign_store.begin_removal, ident)
        rows = 1
        while removed := await self._database.transaction(campaign_store.remove_entries, ident, _ROWS_PER_TRANSACTION):
            rows += removed
        await self._valkey.execute(
            "UNLINK", *(keys[name] for name in ("book", "stream", "dead", "entries", "processes"))
        )
        # Otherwise processes would be woken for a campaign that does not exist.
        for shared in ("woken", "busy"):
            await self._valkey.execute("SREM", keys[shared], ident)
        await self._valkey.execute("LREM", keys["wakeups"], 0, ident)
        # Last: while the row exists, no campaign of this id can be created, so no new keys are deleted here.
        await self._database.transaction(campaign_store.finish_removal, ident)
        log.info("campaign.deleted", campaign=ident, rows=rows)
        return rows

    async def _require_closed(self, ident: str) -> None:
        """Close the campaign on the Valkey server as it is in SQL. Raises `CampaignInUse` if entries are not decided.

        A stop that SQL knows may not have reached the server; an entry that is accepted after this check would be lost.
        """
        await self._database.read(campaign_store.get, ident)
        keys = campaign_keys(self._valkey, ident)
        # Without a book, no entry is accepted before an installation, which reads the state of SQL.
        if await self._valkey.execute("EXISTS", keys["book"]):
            await self._installer.install(ident)
        if undecided := await self._valkey.execute("XLEN", keys["stream"]):
            raise CampaignInUse(f"{undecided} entries of campaign {ident!r} are not decided yet; try again later")


_CAMPAIGNS_PER_PAGE = 20


class CampaignRetention:
    """Retention rule: deletes campaigns that ended long ago, and finishes interrupted deletions."""

    name = "campaigns"
    tables: Collection[str] = ("campaigns", "campaign_entries")

    def __init__(self, valkey: Valkey, database: Database, keep: timedelta) -> None:
        self._database, self._keep, self._remover = database, keep, CampaignDeletion(valkey, database)

    async def prune(self, most: int) -> int:
        """Delete campaigns until `most` rows are deleted; return the number of rows. Campaigns with undecided entries
        are kept."""
        before = self._database.clock.now() - self._keep
        rows, after = 0, ""
        while rows < most and (
            found := await self._database.read(campaign_store.ended_before, before, after, _CAMPAIGNS_PER_PAGE)
        ):
            for ident in found:
                try:
                    rows += await self._remover.remove(ident)
                except (CampaignInUse, NotFound):
                    continue
            # Campaigns that cannot be deleted now must not keep the loop at the same page.
            after = found[-1]
        return rows
