"""A whole process: its leader keeps every room, also one that is made while it runs."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from tests.servers.migrated import migrated_folder
from tests.systems.waiting_room.harness import ROOM, add_visitors
from tests.waiting import look_again, patience
from tidegate.connections import open_context
from tidegate.core.telemetry.metrics import REGISTRY
from tidegate.primitives.membership import MembershipKeys
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import RoomPlan, WaitingRoom, WaitingRooms
from tidegate.systems.waiting_room.system import open_waiting_rooms

BRIEF = RoomPlan(capacity=2, session=timedelta(seconds=1), abandon_after=timedelta(seconds=60), log_length=1000)


@asynccontextmanager
async def running(folder: Path, valkey: Valkey) -> AsyncGenerator[WaitingRooms]:
    """A process that keeps rooms, for the length of a block."""
    settings = Settings(data_dir=await migrated_folder(folder), valkey_url=valkey.url)
    async with open_context(settings) as parts:
        rooms = open_waiting_rooms(settings, parts.database, parts.valkey)
        process = build_process(parts, leader_services={"rooms": rooms.workers()})
        task = asyncio.create_task(process.run())
        try:
            yield rooms
        finally:
            process.stop()
            await task


async def until(valkey: Valkey, room: WaitingRoom, *, active: int, waiting: int) -> None:
    """Wait until so many are inside, and so many wait."""
    async with patience():
        while True:
            counts = await room.counts()
            if (counts.active, counts.waiting, counts.entering) == (active, waiting, 0):
                return
            await valkey.execute_blocking("XREAD", "BLOCK", 300, "STREAMS", room.line.keys["log"], "$", within_s=1)


async def until_known(room: str, *, is_known: bool) -> None:
    """Wait until the process keeps a room, or does so no more."""
    labels = {"room": room, "outcome": "rolled_back"}
    async with patience():
        while (REGISTRY.get_sample_value("room_ended_total", labels) is not None) is not is_known:
            await look_again()


async def test_rooms_are_served_from_start_to_end(tmp_path: Path, embedded: Valkey):
    async with running(tmp_path, embedded) as rooms:
        await rooms.create(ROOM, BRIEF)
        room = await rooms.open(ROOM, None)
        await add_visitors(room, "ada", "bob", "cem")
        await until(embedded, room, active=2, waiting=1)
        leader = MembershipKeys(embedded.unit("shard-0")).leader
        fences = [await embedded.execute("HGET", key, "fence") for key in (room.line.keys["book"], leader)]
        assert fences[0] == fences[1] is not None, "the room knows its leader"
        await until(embedded, room, active=1, waiting=0)  # two sessions ended, and the third came in
        await until(embedded, room, active=0, waiting=0)
        await embedded.execute("FLUSHALL")
        await add_visitors(room, "ada")
        await until(embedded, room, active=1, waiting=0)
        assert REGISTRY.get_sample_value("room_waiting", {"room": ROOM}) == 0
        assert REGISTRY.get_sample_value("room_ended_total", {"room": ROOM, "outcome": "rolled_back"}) is not None
        await rooms.create("other", BRIEF)
        await until_known("other", is_known=True)
        await rooms.delete("other")
        await until_known("other", is_known=False)

    last = REGISTRY.get_sample_value("room_waiting", {"room": ROOM})
    assert last is not None
    assert math.isnan(last), "another process keeps the room now, and knows better"
