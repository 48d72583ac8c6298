"""How long campaigns are kept after their end."""

from collections.abc import Collection
from datetime import timedelta

from tidegate.core.errors import NotFound
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import records
from tidegate.systems.campaigns.campaign import CampaignInUse
from tidegate.systems.campaigns.removal import CampaignRemover

_AT_ONCE = 20


class CampaignRule:
    """Deletes campaigns that ended long ago, and those whose deletion was cut off."""

    name = "campaigns"
    tables: Collection[str] = ("campaigns", "campaign_entries")

    def __init__(self, valkey: Valkey, database: Database, keep: timedelta) -> None:
        self._database, self._keep, self._remover = database, keep, CampaignRemover(valkey, database)

    async def prune(self, most: int) -> int:
        """Delete some of them; return how many rows. One that has undecided entries stays."""
        before = self._database.clock.now() - self._keep
        rows, after = 0, ""
        while rows < most and (found := await self._database.read(records.ended_before, before, after, _AT_ONCE)):
            for ident in found:
                try:
                    rows += await self._remover.remove(ident)
                except (CampaignInUse, NotFound):
                    continue
            after = found[-1]
        return rows
