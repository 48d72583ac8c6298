"""Leaders that are killed, frozen or replaced in the middle of an admission."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_file
from tests.systems.waiting_room.admitting_process import BY_FIVES
from tests.systems.waiting_room.harness import ROOM, add_visitors, open_signer, steps
from tests.waiting import patience
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import RoomPlan, WaitingRoom, WaitingRooms
from tidegate.systems.waiting_room.room_store import room_tokens

ROOT = Path(__file__).parents[3]
USERS = [f"user-{n:03}" for n in range(40)]
CROWD, LATE = USERS[:30], USERS[30:]


class Scene:
    """A room for everyone, into which five at a time are admitted, by the clocks of the machine."""

    def __init__(self, room: WaitingRoom, rooms: WaitingRooms, database: Database, valkey: Valkey, url: str) -> None:
        self.room, self.rooms, self.valkey = room, rooms, valkey
        self._database, self._url = database, url

    @asynccontextmanager
    async def leader(self, fence: int, step: str = "none") -> AsyncGenerator[WarmProcess]:
        """A process that admits with this fencing number and waits at a step."""
        command = (sys.executable, "-m", "tests.systems.waiting_room.admitting_process", self._url, self.valkey.url)
        process = await start_warm(*command, str(fence), step, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()

    @asynccontextmanager
    async def kept(self, fence: int) -> AsyncGenerator[None]:
        """This process keeps the room for the length of a block, as the leader of a deployment does."""
        keeper, stopping = self.rooms.worker(ROOM, fence), asyncio.Event()
        timekeeper = Timekeeper(Wakeup(self.valkey, keeper.wake), [keeper], on_begin=keeper.begin)
        keeping = asyncio.create_task(timekeeper.run(stopping))
        try:
            yield
        finally:
            stopping.set()
            await keeping

    async def has_admitted(self, users: int) -> None:
        """Wait until so many are inside."""
        async with patience():
            while (await self.room.counts()).active < users:
                await self._news()

    async def is_paused(self) -> None:
        """Wait until a leader has paused the room to take it over."""
        async with patience():
            while not await self.valkey.execute("HEXISTS", self.room.line.keys["book"], "pause"):
                await asyncio.sleep(0)

    async def _news(self) -> None:
        await self.valkey.execute_blocking(
            "XREAD", "BLOCK", 500, "STREAMS", self.room.line.keys["log"], "$", within_s=1
        )

    async def admitted(self) -> tuple[list[str], list[str]]:
        """Everyone who was ever admitted, in order: as the room's log has it, and as SQL has it."""
        log = await steps(self.room, self.valkey)
        in_log = [user for what, users, *_ in log if what == "admitted" for user in users]
        return in_log, await self._database.read(_admitted)


@pytest.fixture
async def scene(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[Scene]:
    url = await migrated_file(tmp_path / "rooms.db")
    async with await Database.open(url) as database:
        rooms = WaitingRooms(embedded, database, open_signer, BY_FIVES)
        await rooms.create(ROOM, RoomPlan(capacity=len(USERS), log_length=100_000))
        yield Scene(await rooms.open(ROOM), rooms, database, embedded, url)


@pytest.mark.smoke
@pytest.mark.crash
@pytest.mark.parametrize("step", ["taking", "taken", "writing", "written", "told"])
async def test_a_leader_killed_at_any_step_of_an_admission_leaves_no_visitor_overtaken(step: str, scene: Scene):
    await add_visitors(scene.room, *CROWD)
    async with scene.leader(1, step) as old:
        assert await _said(old) == step
        old.kill()
        await old.wait()
        async with scene.kept(2):
            await scene.has_admitted(len(CROWD))

    assert await scene.admitted() == (CROWD, CROWD)


@pytest.mark.crash
@pytest.mark.parametrize("step", ["taking", "taken", "writing", "written", "told"])
async def test_a_leader_frozen_at_any_step_of_an_admission_admits_no_visitor_when_it_continues(step: str, scene: Scene):
    await add_visitors(scene.room, *CROWD)
    async with scene.leader(1, step) as old:
        assert await _said(old) == step
        old.send_signal(signal.SIGSTOP)
        async with scene.kept(2):
            if step == "writing":  # its open transaction locks the database: the next leader cannot finish before it
                await scene.is_paused()
                _continue(old)
            await scene.has_admitted(len(CROWD))
        await add_visitors(scene.room, *LATE)
        if step != "writing":
            _continue(old)
        assert await _said(old) == "deposed"
        assert await scene.admitted() == (CROWD, CROWD)
        async with scene.kept(3):
            await scene.has_admitted(len(USERS))

    assert await scene.admitted() == (USERS, USERS)


@pytest.mark.race
async def test_of_several_assumed_leaders_the_latest_admits_all_in_order(scene: Scene):
    await add_visitors(scene.room, *CROWD)
    async with scene.leader(1) as one, scene.leader(2) as two, scene.leader(3):
        assert [await _said(each) for each in (one, two)] == ["deposed"] * 2
        await scene.has_admitted(len(CROWD))

    assert await scene.admitted() == (CROWD, CROWD)


def _continue(process: WarmProcess) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go on\n")
    process.send_signal(signal.SIGCONT)


async def _said(process: WarmProcess) -> str:
    assert process.stdout is not None
    async with patience():
        return (await process.stdout.readline()).decode().strip()


def _admitted(tx: Transaction) -> list[str]:
    at = room_tokens.c
    return list(tx.execute(select(at.user_id).where(at.state == "active").order_by(at.admission)).scalars())
