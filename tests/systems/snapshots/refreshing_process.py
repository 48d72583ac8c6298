"""A process that refreshes until it is ended.

Arguments: folder, Valkey server, game, API key, by how many seconds its clock is ahead, and the refresh workers that it
runs, if not all services of snapshots.
"""

import asyncio
import sys
import time
from datetime import datetime, timedelta
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


def shift_clock(ahead: timedelta) -> None:
    """Make every clock of this process that tells the time of day wrong by a constant."""
    now, seconds, nanoseconds = SystemClock.now, time.time, time.time_ns

    def shifted_now(self: SystemClock) -> datetime:
        return now(self) + ahead

    SystemClock.now = shifted_now
    time.time = lambda: seconds() + ahead.total_seconds()
    time.time_ns = lambda: nanoseconds() + ahead // timedelta(microseconds=1) * 1000


async def main(folder: str, valkey_url: str, url: str, key: str, ahead_s: str = "0", *workers: str) -> None:
    settings = settings_for(Path(folder), valkey_url, url, key)
    shift_clock(timedelta(seconds=float(ahead_s)))
    async with (
        connected(valkey_url, prefix=settings.key_prefix) as valkey,
        await Database.open(settings.effective_database_url) as database,
        open_snapshots(build_context(settings, valkey, database)) as snapshots,
    ):
        some = {name: snapshots.workers[name] for name in workers}
        await snapshots.process(works=not some, services=some).run(handle_signals=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
