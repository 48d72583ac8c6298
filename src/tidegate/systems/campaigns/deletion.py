"""Deletes campaigns: entries first, then keys, the campaign's own row last.

The first step marks the campaign as being deleted. From then on it is not found, it cannot be entered or started, and
no campaign of the same id can be created before its row is deleted. An interrupted deletion is finished by the same
call, or by the retention rule.
"""

from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta

from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.installation import CampaignInstaller
from tidegate.systems.campaigns.model import CampaignInUse
from tidegate.systems.campaigns.scripts import campaign_keys

log = get_logger(__name__)
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
