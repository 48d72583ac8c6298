"""Events committed by a process that does not lead reach the relay of the one that does."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from datetime import timedelta
from pathlib import Path

import pytest

from tidegate.assembly import build_process, open_parts
from tidegate.database import outbox
from tidegate.database.outbox import Event
from tidegate.flow.presence import PresenceSettings
from tidegate.runtime.delivery import Handler
from tidegate.settings import Settings

ROOT = Path(__file__).parents[2]
LEASE = PresenceSettings(lease=timedelta(seconds=1), renew_every=timedelta(milliseconds=500))

COMMITTER = """
import asyncio, os, signal, sys
from pathlib import Path
from tidegate.assembly import build_process, open_parts
from tidegate.database import outbox
from tidegate.database.outbox import Event
from tidegate.flow.presence import PresenceSettings
from tidegate.settings import Settings
from datetime import timedelta
async def main():
    lease = PresenceSettings(lease=timedelta(seconds=1), renew_every=timedelta(milliseconds=500))
    async with open_parts(Settings(data_dir=Path(sys.argv[1]), presence=lease)) as parts:
        process = build_process(parts)
        running = asyncio.create_task(process.run())
        while len(await parts.presence.members()) < 2:
            await asyncio.sleep(0.01)
        if sys.argv[2] == "mute":  # it dies between its commit and the ring
            def die(tx, event):
                outbox.add(tx, event)
                tx.after_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
            await parts.database.transaction(die, Event("told", "key", {}))
        await parts.database.transaction(outbox.add, Event("told", "key", {}))
        await running
asyncio.run(main())
"""


@pytest.mark.crash
@pytest.mark.parametrize("manner", ["ringing", "mute"])
async def test_the_leader_delivers_what_another_process_committed(tmp_path: Path, manner: str):
    """Whether the other one rings, or dies between its commit and the ring."""
    heard = asyncio.Event()

    async def hear(_event: Event) -> None:
        heard.set()

    async with open_parts(Settings(data_dir=tmp_path, presence=LEASE)) as parts:
        process = build_process(parts, handlers=[Handler("told", "listener", hear)])
        running = asyncio.create_task(process.run(heed_signals=False))
        await parts.database.transaction(outbox.add, Event("told", "first", {}))
        await heard.wait()  # we lead
        heard.clear()
        command = (sys.executable, "-c", COMMITTER, str(tmp_path), manner)
        other = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=ROOT)
        try:
            async with asyncio.timeout(20):
                await heard.wait()
            if manner == "mute":
                assert await other.wait() == -signal.SIGKILL
        finally:
            if other.returncode is None:
                os.kill(other.pid, signal.SIGKILL)
            await other.wait()
        process.stop()
        await running
        depth = await parts.database.read(outbox.depth)
    assert depth.pending == 0
