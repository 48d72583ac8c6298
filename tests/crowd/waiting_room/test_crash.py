"""Processes that are killed in the middle of an admission, and several that admit at once."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.crowd.waiting_room.admitter import BRIEFLY
from tests.crowd.waiting_room.venue import ROOM, come, inside, line, open_office, steps
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_file
from tidegate.crowd.waiting_room import Reception, RoomPlan, WaitingRoom
from tidegate.database import Database
from tidegate.flow.doorbell import Doorbell
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.valkey import Valkey

ROOT = Path(__file__).parents[3]
USERS = [f"user-{n:03}" for n in range(100)]


@asynccontextmanager
async def opened(folder: Path, valkey: Valkey, capacity: int) -> AsyncGenerator[tuple[WaitingRoom, Reception, str]]:
    """A room, its reception, and the URL of its database; by the clocks of the machines."""
    url = await migrated_file(folder / "venue.db")
    async with await Database.open(url) as database:
        reception = Reception(valkey, database, open_office, BRIEFLY)
        await reception.create(ROOM, RoomPlan(capacity=capacity, log_length=100_000))
        yield await reception.open(ROOM), reception, url


@asynccontextmanager
async def admitter(url: str, valkey: Valkey, how_far: str) -> AsyncGenerator[WarmProcess]:
    command = (sys.executable, "-m", "tests.crowd.waiting_room.admitter", url, valkey.url, how_far)
    process = await start_warm(*command, stdout=PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def said(process: WarmProcess) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


@pytest.mark.crash
@pytest.mark.parametrize("step", ["take", "write", "tell"])
async def test_wherever_an_admission_is_cut_off_everybody_is_inside_once_or_in_his_place(
    step: str, tmp_path: Path, embedded: Valkey
):
    async with opened(tmp_path, embedded, capacity=5) as (room, reception, url):
        await come(room, *USERS[:20])
        async with admitter(url, embedded, step) as doomed:
            assert await said(doomed) == step
            doomed.kill()
            await doomed.wait()
        assert (await room.census()).waiting == 15

        keeper, stopping = reception.keeper(ROOM), asyncio.Event()
        timekeeper = Timekeeper(Doorbell(embedded, keeper.wake), [keeper], on_begin=keeper.begin)
        keeping = asyncio.create_task(timekeeper.run(stopping))
        async with asyncio.timeout(20):
            while (await room.census()).active < 5:
                await embedded.execute_blocking(
                    "XREAD", "BLOCK", 500, "STREAMS", room.line.keys["log"], "$", within_s=1
                )
        stopping.set()
        await keeping

        assert await inside(room, *USERS[:20]) == USERS[:5]
        assert await line(room, embedded) == USERS[5:20]
        assert max(count for _, _, count, _ in await steps(room, embedded)) == 5


@pytest.mark.race
async def test_several_that_admit_at_once_never_overfill_the_room_and_overtake_nobody(tmp_path: Path, embedded: Valkey):
    async with opened(tmp_path, embedded, capacity=7) as (room, _, url):
        await come(room, *USERS)
        async with (
            admitter(url, embedded, "keep") as one,
            admitter(url, embedded, "keep") as two,
            admitter(url, embedded, "keep") as three,
        ):
            assert [await said(each) for each in (one, two, three)] == ["done"] * 3
        log = await steps(room, embedded)

        assert max(count for _, _, count, _ in log) <= 7
        assert [user for what, users, *_ in log if what == "entering" for user in users] == USERS
        assert sorted(user for what, users, *_ in log if what == "admitted" for user in users) == USERS
