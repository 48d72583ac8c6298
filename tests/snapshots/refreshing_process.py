"""A process that refreshes, until somebody ends it. Arguments: folder, Valkey server, game, API key."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from pydantic import SecretStr

from tests.snapshots.deployment import QUICK
from tidegate.assembly import open_parts, open_snapshots
from tidegate.flow.presence.settings import PresenceSettings
from tidegate.settings import Settings
from tidegate.snapshots.settings import GameSettings, SnapshotSettings

BRIEF_LIFE = PresenceSettings(lease=timedelta(seconds=1), renew_every=timedelta(milliseconds=300))


def settings_for(folder: Path, valkey_url: str, url: str, key: str) -> Settings:
    return Settings(
        data_dir=folder,
        valkey_url=valkey_url,
        auto_migrate=True,
        limiter=QUICK,
        presence=BRIEF_LIFE,
        snapshots=SnapshotSettings(game=GameSettings(url=url, api_key=SecretStr(key))),
    )


async def main(folder: str, valkey_url: str, url: str, key: str) -> None:
    async with (
        open_parts(settings_for(Path(folder), valkey_url, url, key)) as parts,
        open_snapshots(parts) as snapshots,
    ):
        await snapshots.process().run(handle_signals=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
