"""A room that is deleted leaves nothing behind, wherever the deletion is cut off."""

from datetime import timedelta

import pytest
from sqlalchemy import func, select

from tests.systems.waiting_room.counter import served
from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors, inside, open_signer
from tidegate.core.errors import NotFound
from tidegate.storage.sql import Transaction
from tidegate.systems.waiting_room import InLine, PassRefused, RoomInUse, RoomPlan, WaitingRooms, room_store, service
from tidegate.systems.waiting_room.room_store import room_tokens, waiting_rooms

USERS = [f"user-{n:02}" for n in range(12)]


async def left(harness: RoomHarness) -> tuple[int, int, set[bytes]]:
    """What is left of rooms: rows of rooms, rows of admissions, keys on the server."""
    keys = {key for key in await harness.valkey.execute("KEYS", "*") if b"room:" in key}
    return *await harness.database.read(_rows), keys


def _rows(tx: Transaction) -> tuple[int, int]:
    counts = [
        tx.execute(select(func.count()).select_from(table)).scalar_one() for table in (waiting_rooms, room_tokens)
    ]
    return counts[0], counts[1]


@pytest.mark.every_server
async def test_a_deleted_room_leaves_no_row_and_no_key(
    harness_on_each_server: RoomHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "_REMOVED_AT_ONCE", 4)
    room = await harness_on_each_server.open(capacity=10)
    await add_visitors(room, *USERS)
    await harness_on_each_server.run_worker()
    elsewhere = await WaitingRooms(harness_on_each_server.valkey, harness_on_each_server.database, open_signer).room(
        ROOM
    )
    await harness_on_each_server.rooms.close(ROOM)

    with pytest.raises(RoomInUse, match="10 visitor"):
        await harness_on_each_server.rooms.delete(ROOM)
    await harness_on_each_server.rooms.delete(ROOM, force=True)

    assert await left(harness_on_each_server) == (0, 0, set())
    with pytest.raises(NotFound):
        await elsewhere.join("ada")
    assert await harness_on_each_server.run_worker() is None, "whoever kept it does not fail"
    with pytest.raises(NotFound):
        await harness_on_each_server.rooms.delete(ROOM)


async def test_only_a_closed_room_is_deleted_and_an_empty_one_needs_no_force(harness: RoomHarness):
    room = await harness.open(capacity=1, session=timedelta(minutes=1))
    await add_visitors(room, "ada")
    await harness.run_worker()
    with pytest.raises(RoomInUse, match="close it"):
        await harness.rooms.delete(ROOM, force=True)
    await harness.rooms.close(ROOM)
    harness.clock.advance(timedelta(minutes=2))

    async with served(harness.rooms) as client:
        reply = await client.ask("DELETE", f"/v1/rooms/{ROOM}")
        again = await client.ask("DELETE", f"/v1/rooms/{ROOM}")

    assert (reply.status, reply.json) == (200, {"deleted": ROOM})
    assert again.status == 404


@pytest.mark.parametrize("cut_off", [False, True])
async def test_a_new_room_of_the_same_name_has_no_data_of_the_old_one(harness: RoomHarness, cut_off: bool):
    """Also where the process that deleted it died before it removed the keys, and others remember the old room."""
    room = await harness.open(capacity=0)
    passes = await add_visitors(room, *USERS)
    await room.invite(["star"])
    await harness.rooms.close(ROOM)
    if cut_off:
        await harness.database.transaction(service._remove_room, ROOM)  # pyright: ignore[reportPrivateUsage]
    else:
        await harness.rooms.delete(ROOM, force=True)

    harness.clock.advance(timedelta(seconds=1))
    there = WaitingRooms(harness.valkey, harness.database, open_signer)
    await there.create(ROOM, RoomPlan(capacity=5))
    new = await there.open(ROOM)
    await harness.run_worker()

    assert (await new.counts()).waiting == 0
    assert (await new.join("ada")).standing == InLine(place=1, ahead=0, is_new=True)
    with pytest.raises(PassRefused):
        await new.status(passes[0])
    remembered = await harness.rooms.room(ROOM)
    await remembered.present()
    assert remembered.room.line == new.room.line
    with pytest.raises(PassRefused):
        await remembered.status(passes[0])
    await harness.run_worker()
    assert await inside(new, "ada", "star") == ["ada"]


async def test_repeating_the_command_completes_an_interrupted_deletion(harness: RoomHarness):
    await harness.open(capacity=1)
    await harness.rooms.close(ROOM)
    await harness.database.transaction(room_store.remove, ROOM)
    assert (await left(harness))[2]

    with pytest.raises(NotFound):
        await harness.rooms.delete(ROOM)

    assert await left(harness) == (0, 0, set())
