"""A process that refreshes until it is ended.

Arguments: folder, Valkey server, game, API key, and by how many seconds its clock is ahead.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import SecretStr

from tests.systems.snapshots.deployment import QUICK
from tidegate.connections import build_context
from tidegate.core.clock import SystemClock
from tidegate.primitives.settings import MembershipSettings
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey.connection import connected
from tidegate.systems.snapshots.service import open_snapshots
from tidegate.systems.snapshots.settings import GameSettings, SnapshotSettings

BRIEF_LIFE = MembershipSettings(lease=timedelta(seconds=1), renew_every=timedelta(milliseconds=300))


def settings_for(folder: Path, valkey_url: str, url: str, key: str) -> Settings:
    return Settings(
        data_dir=folder,
        valkey_url=valkey_url,
        auto_migrate=True,
        limiter=QUICK,
        membership=BRIEF_LIFE,
        snapshots=SnapshotSettings(game=GameSettings(url=url, api_key=SecretStr(key))),
    )


class OffsetClock(SystemClock):
    """The machine's clock, wrong by a constant."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


async def main(folder: str, valkey_url: str, url: str, key: str, ahead_s: str = "0") -> None:
    settings = settings_for(Path(folder), valkey_url, url, key)
    clock = OffsetClock(timedelta(seconds=float(ahead_s)))
    async with (
        connected(valkey_url, prefix=settings.key_prefix) as valkey,
        await Database.open(settings.effective_database_url, clock=clock) as database,
        open_snapshots(build_context(settings, valkey, database)) as snapshots,
    ):
        await snapshots.process().run(handle_signals=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
