"""Deletes campaigns: rows first, then keys, the campaign's own row last.

The first step marks the campaign as being deleted. From then on it is not found, it cannot be entered or started, and
no campaign of the same id can be made before its last row is gone. A deletion that was cut off is finished by the same
call, or by the leader (`retention.py`).
"""

from contextlib import suppress

from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import records
from tidegate.systems.campaigns.campaign import CampaignInUse
from tidegate.systems.campaigns.install import Installer
from tidegate.systems.campaigns.keys import campaign_keys

log = get_logger(__name__)

_AT_ONCE = 1000
"""Rows: short transactions, between which others write."""


class CampaignRemover:
    """Deletes campaigns that are over."""

    def __init__(self, valkey: Valkey, database: Database) -> None:
        self._valkey, self._database, self._installer = valkey, database, Installer(valkey, database)

    async def remove(self, ident: str) -> int:
        """Delete a campaign with its entries and dead letters; return how many rows. Points stay. Safe to repeat.

        Raises `NotFound`, or `CampaignInUse` where people may still enter or entries are not decided.
        """
        keys = campaign_keys(self._valkey, ident)
        with suppress(NotFound):  # a deletion that was cut off: the campaign was closed then
            await self._require_closed(ident)
        await self._database.transaction(records.begin_removal, ident)
        rows = 1
        while removed := await self._database.transaction(records.remove_entries, ident, _AT_ONCE):
            rows += removed
        await self._valkey.execute(
            "UNLINK", *(keys[name] for name in ("book", "stream", "dead", "entries", "processes"))
        )
        for shared in ("woken", "busy"):
            await self._valkey.execute("SREM", keys[shared], ident)
        await self._valkey.execute("LREM", keys["wakeups"], 0, ident)
        await self._database.transaction(records.finish_removal, ident)
        log.info("campaign.deleted", campaign=ident, rows=rows)
        return rows

    async def _require_closed(self, ident: str) -> None:
        """Close the campaign on Valkey as it is in SQL; raise `CampaignInUse` where entries are not decided.

        A stop that SQL knows may not have reached Valkey. An entry that is accepted after this check would be lost.
        """
        await self._database.read(records.get, ident)
        keys = campaign_keys(self._valkey, ident)
        if await self._valkey.execute("EXISTS", keys["book"]):
            await self._installer.install(ident)
        if undecided := await self._valkey.execute("XLEN", keys["stream"]):
            raise CampaignInUse(f"{undecided} entries of campaign {ident!r} are not decided yet; try again later")
