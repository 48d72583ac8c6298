"""Events committed by a process that does not lead reach the relay of the one that does."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.primitives.wakeup.waiters import until_blocked
from tests.processes import start_warm
from tests.servers.migrated import migrated_file
from tests.waiting import patience
from tidegate.connections import open_context
from tidegate.core.backoff import Backoff
from tidegate.core.errors import ValkeyUnavailable
from tidegate.primitives.membership import MembershipSettings
from tidegate.primitives.wakeup import Wakeup
from tidegate.process import build_process
from tidegate.runtime.delivery import Handler
from tidegate.runtime.outbox_notifier import NotifiedRelay, OutboxNotifier
from tidegate.runtime.relay import Relay
from tidegate.runtime.service import Restarts, keep_running
from tidegate.settings import Settings
from tidegate.storage.sql import Database, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.valkey import Valkey

ROOT = Path(__file__).parents[2]
LEASE = MembershipSettings(lease=timedelta(seconds=1), renew_every=timedelta(milliseconds=500))

COMMITTER = """
import asyncio, os, signal, sys
from pathlib import Path
from tidegate.process import build_process
from tidegate.connections import open_context
from tidegate.storage.sql import outbox
from tidegate.storage.sql.outbox import Event
from tidegate.primitives.membership import MembershipSettings
from tidegate.settings import Settings
from datetime import timedelta
async def main():
    lease = MembershipSettings(lease=timedelta(seconds=1), renew_every=timedelta(milliseconds=500))
    async with open_context(Settings(data_dir=Path(sys.argv[1]), membership=lease)) as parts:
        process = build_process(parts)
        running = asyncio.create_task(process.run())
        while len(await parts.membership.members()) < 2:
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


class Bell(Wakeup):
    """Counts the rings, and lets something happen during each."""

    def __init__(self, valkey: Valkey) -> None:
        super().__init__(valkey, valkey.unit("announcer").key("commits"))
        self.rings = 0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def notify(self) -> None:
        await super().notify()
        self.rings += 1
        if self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Database]:
    async with await Database.open(await migrated_file(tmp_path / "announced.db")) as opened:
        yield opened


async def test_a_commit_during_shutdown_is_announced(database: Database, valkey: Valkey):
    bell, stopping = Bell(valkey), asyncio.Event()

    async def commit_and_stop() -> None:
        await database.transaction(outbox.add, Event("told", "key", {}))
        stopping.set()

    bell.meanwhile = commit_and_stop
    async with patience():
        await OutboxNotifier(database, bell, leads_here=lambda: False).run(stopping)
    assert bell.rings == 2


async def test_a_stop_during_a_server_outage_is_not_delayed(database: Database, valkey: Valkey):
    class Broken(Bell):
        async def notify(self) -> None:
            self.rings += 1
            stopping.set()
            raise ValkeyUnavailable("gone")

    bell, stopping = Broken(valkey), asyncio.Event()
    async with patience():
        await OutboxNotifier(database, bell, leads_here=lambda: False).run(stopping)
    assert bell.rings == 1


@pytest.mark.parametrize("how", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_relay_whose_listener_failed_is_restarted_and_listens(
    database: Database, valkey: Valkey, how: type[BaseException]
):
    class GoesDeaf(Bell):
        waits = 0

        async def wait(self, within_s: float) -> bool:
            self.waits += 1
            if self.waits == 1:
                raise how
            return await super().wait(within_s)

    bell, stopping = GoesDeaf(valkey), asyncio.Event()
    relay = NotifiedRelay(Relay(database, []), bell)
    at_once = Restarts(backoff=Backoff(first=timedelta(microseconds=1), most=timedelta(microseconds=1)))
    running = asyncio.create_task(keep_running("relay", relay, stopping, restarts=at_once))
    try:
        async with patience():
            await until_blocked(valkey, valkey.unit("announcer").key("commits"))
    finally:
        stopping.set()
        await running


async def test_a_reader_that_is_unblocked_manually_continues(database: Database, valkey: Valkey):
    bell, stopping = Bell(valkey), asyncio.Event()
    key = valkey.unit("announcer").key("commits")
    running = asyncio.create_task(NotifiedRelay(Relay(database, []), bell).run(stopping))
    await until_blocked(valkey, key)
    reader = re.search(rb"id=(\d+) .* cmd=blpop", await valkey.execute("CLIENT", "LIST"))
    assert reader
    assert await valkey.execute("CLIENT", "UNBLOCK", reader[1], "ERROR")
    await bell.notify()
    async with patience():
        while await valkey.execute("LLEN", key):  # until the token was taken, which nobody announces
            await asyncio.sleep(0)
    assert not running.done()
    stopping.set()
    await running


@pytest.mark.crash
@pytest.mark.parametrize("manner", ["ringing", "mute"])
async def test_the_leader_delivers_events_committed_by_another_process(tmp_path: Path, manner: str):
    """Whether the other one rings, or dies between its commit and the ring."""
    heard = asyncio.Event()

    async def on_change(_event: Event) -> None:
        heard.set()

    await migrated_file(tmp_path / "tidegate.db")
    async with open_context(Settings(data_dir=tmp_path, membership=LEASE)) as parts:
        process = build_process(parts, handlers=[Handler("told", "listener", on_change)])
        running = asyncio.create_task(process.run())
        await parts.database.transaction(outbox.add, Event("told", "first", {}))
        await heard.wait()  # we lead
        heard.clear()
        command = (sys.executable, "-c", COMMITTER, str(tmp_path), manner)
        other = await start_warm(*command, stdout=PIPE, cwd=ROOT)
        try:
            async with patience():
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
