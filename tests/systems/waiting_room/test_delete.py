"""A room that is deleted leaves nothing behind, wherever the deletion is cut off."""

from datetime import timedelta

import pytest
from sqlalchemy import func, select

from tests.systems.waiting_room.counter import served
from tests.systems.waiting_room.venue import ROOM, Venue, come, inside, open_signer
from tidegate.core.errors import NotFound
from tidegate.storage.sql import Transaction
from tidegate.systems.waiting_room import InLine, PassRefused, RoomInUse, RoomPlan, WaitingRooms, room_store, service
from tidegate.systems.waiting_room.tables import room_tokens, waiting_rooms

USERS = [f"user-{n:02}" for n in range(12)]


async def left(venue: Venue) -> tuple[int, int, set[bytes]]:
    """What is left of rooms: rows of rooms, rows of admissions, keys on the server."""
    keys = {key for key in await venue.valkey.execute("KEYS", "*") if b"room:" in key}
    return *await venue.database.read(_rows), keys


def _rows(tx: Transaction) -> tuple[int, int]:
    counts = [
        tx.execute(select(func.count()).select_from(table)).scalar_one() for table in (waiting_rooms, room_tokens)
    ]
    return counts[0], counts[1]


@pytest.mark.every_server
async def test_a_deleted_room_leaves_no_row_and_no_key(anywhere: Venue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "_REMOVED_AT_ONCE", 4)
    room = await anywhere.open(capacity=10)
    await come(room, *USERS)
    await anywhere.run_worker()
    elsewhere = await WaitingRooms(anywhere.valkey, anywhere.database, open_signer).room(ROOM)
    await anywhere.rooms.close(ROOM)

    with pytest.raises(RoomInUse, match="10 visitor"):
        await anywhere.rooms.delete(ROOM)
    await anywhere.rooms.delete(ROOM, force=True)

    assert await left(anywhere) == (0, 0, set())
    with pytest.raises(NotFound):
        await elsewhere.join("ada")
    assert await anywhere.run_worker() is None, "whoever kept it does not fail"
    with pytest.raises(NotFound):
        await anywhere.rooms.delete(ROOM)


async def test_only_a_closed_room_is_deleted_and_an_empty_one_needs_no_force(venue: Venue):
    room = await venue.open(capacity=1, session=timedelta(minutes=1))
    await come(room, "ada")
    await venue.run_worker()
    with pytest.raises(RoomInUse, match="close it"):
        await venue.rooms.delete(ROOM, force=True)
    await venue.rooms.close(ROOM)
    venue.clock.advance(timedelta(minutes=2))

    async with served(venue.rooms) as client:
        reply = await client.ask("DELETE", f"/v1/rooms/{ROOM}")
        again = await client.ask("DELETE", f"/v1/rooms/{ROOM}")

    assert (reply.status, reply.json) == (200, {"deleted": ROOM})
    assert again.status == 404


@pytest.mark.parametrize("cut_off", [False, True])
async def test_a_new_room_of_the_same_name_has_no_data_of_the_old_one(venue: Venue, cut_off: bool):
    """Also where the process that deleted it died before it removed the keys, and others remember the old room."""
    room = await venue.open(capacity=0)
    passes = await come(room, *USERS)
    await room.invite(["star"])
    await venue.rooms.close(ROOM)
    if cut_off:
        await venue.database.transaction(service._remove_room, ROOM)  # pyright: ignore[reportPrivateUsage]
    else:
        await venue.rooms.delete(ROOM, force=True)

    venue.clock.advance(timedelta(seconds=1))
    there = WaitingRooms(venue.valkey, venue.database, open_signer)
    await there.create(ROOM, RoomPlan(capacity=5))
    new = await there.open(ROOM)
    await venue.run_worker()

    assert (await new.census()).waiting == 0
    assert (await new.join("ada")).standing == InLine(place=1, ahead=0, is_new=True)
    with pytest.raises(PassRefused):
        await new.look(passes[0])
    remembered = await venue.rooms.room(ROOM)
    await remembered.present()
    assert remembered.room.line == new.room.line
    with pytest.raises(PassRefused):
        await remembered.look(passes[0])
    await venue.run_worker()
    assert await inside(new, "ada", "star") == ["ada"]


async def test_repeating_the_command_completes_an_interrupted_deletion(venue: Venue):
    await venue.open(capacity=1)
    await venue.rooms.close(ROOM)
    await venue.database.transaction(room_store.remove, ROOM)
    assert (await left(venue))[2]

    with pytest.raises(NotFound):
        await venue.rooms.delete(ROOM)

    assert await left(venue) == (0, 0, set())
