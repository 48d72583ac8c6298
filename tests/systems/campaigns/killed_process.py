"""A process that works on campaigns as far as it is told, says so, and waits for its end.

    take    it takes a call, and does not answer it
    read    it reads entries, and decides nothing
    decide  it decides entries, and commits nothing
    commit  it commits, and does not tell the server
    work    it works

Arguments: database, Valkey server, its name, how far.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey.connection import connected
from tidegate.systems.campaigns import decider, scripts
from tidegate.systems.campaigns.decider import ConsumerContext
from tidegate.systems.campaigns.installation import CampaignInstaller
from tidegate.systems.campaigns.kinds import FirstCome, Kinds, Points
from tidegate.systems.campaigns.model import Campaign, CampaignEntry, EntryOutcome
from tidegate.systems.campaigns.settings import CampaignSettings
from tidegate.systems.campaigns.worker import CampaignWorker


class BlockingKind(Points):
    """Has credited the points, and then hangs."""

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:
        outcomes = super().apply(tx, campaign, entries)
        print("reached", flush=True)
        while True:
            pass
        return outcomes


async def reach(*_: Any, **__: Any) -> None:
    """Say that it is reached, and go no further."""
    print("reached", flush=True)
    await asyncio.Event().wait()


async def main(database_url: str, valkey_url: str, owner: str, how_far: str) -> None:
    async with connected(valkey_url) as valkey, await Database.open(database_url) as database:
        kinds = Kinds([FirstCome(), BlockingKind() if how_far == "decide" else Points()])
        context = ConsumerContext(valkey, database, owner, kinds, CampaignSettings(idle_timeout_seconds=30))
        match how_far:
            case "take":
                scripts.serve = reach  # pyright: ignore[reportAttributeAccessIssue]
            case "read":
                database.transaction = reach  # pyright: ignore[reportAttributeAccessIssue]
            case "commit":
                decider.scripts.settle = reach  # pyright: ignore[reportAttributeAccessIssue]
            case _:
                pass
        await CampaignWorker(context, CampaignInstaller(valkey, database)).run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
