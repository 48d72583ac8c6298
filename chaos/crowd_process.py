"""A process of the crowd campaign: one that lets people in, until it is killed, or one that plays a part of the crowd.

python -m chaos.crowd_process admit DATABASE VALKEY
python -m chaos.crowd_process crowd DATABASE VALKEY NAME PEOPLE LEAVING
"""

import asyncio
import random
import sys
from contextlib import suppress
from datetime import timedelta

from tidegate.crowd.waiting_room import (
    Inside,
    Nowhere,
    PassOffice,
    Reception,
    Standing,
    WaitingRoom,
    WaitingRoomSettings,
)
from tidegate.crowd.waiting_room.tokens import Entry, leave
from tidegate.database import Database
from tidegate.flow.doorbell import Doorbell
from tidegate.kernel.errors import Unavailable
from tidegate.runtime.service import Restarts, keep_running
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.telemetry.logs import configure
from tidegate.valkey import Valkey
from tidegate.valkey.connection import connected

ROOM = "crowd"
SETTINGS = WaitingRoomSettings(settle_after=timedelta(seconds=2))
_AT_ONCE = 50
_IN_SIGHT = 2_000


async def open_office() -> PassOffice:
    """Every process of the campaign signs with the same key."""
    return PassOffice([b"a key for all of this campaign.."])


async def admit(reception: Reception, valkey: Valkey) -> None:
    """Keep the room, as the leader of a deployment does; several do it at once."""
    keeper = reception.keeper(ROOM)
    timekeeper = Timekeeper(Doorbell(valkey, keeper.wake), [keeper], on_begin=keeper.begin)
    await keep_running("keeper", timekeeper, asyncio.Event(), restarts=Restarts())


async def crowd(room: WaitingRoom, database: Database, name: str, people: int, leaving: float) -> None:
    """Join one after the other, wait to be let in, and leave or stay until the time is over."""
    left = [f"{name}-{n:06}" for n in range(people)]
    random.shuffle(left)
    for start in range(0, people, _AT_ONCE):
        await asyncio.gather(*(_join(room, user) for user in left[start : start + _AT_ONCE]))
    print("joined", flush=True)
    draw, staying = random.Random(name), set[str]()
    while left:
        seen, left = left[:_IN_SIGHT], left[_IN_SIGHT:]
        try:
            standings = (await room.look_at(seen)).standings
        except Unavailable:
            left = seen + left
            continue
        ended = {user for user, at in zip(seen, standings, strict=True) if isinstance(at, Nowhere)}
        inside = [user for user, at in zip(seen, standings, strict=True) if _is_new_inside(user, at, staying)]
        leavers = [user for user in inside if draw.random() < leaving]
        staying |= set(inside) - set(leavers)
        for start in range(0, len(leavers), _AT_ONCE):
            await asyncio.gather(*(_leave(room, database, user) for user in leavers[start : start + _AT_ONCE]))
        left = [user for user in seen if user not in ended] + left
        await asyncio.sleep(0.1 * draw.random())


def _is_new_inside(user: str, at: Standing, staying: set[str]) -> bool:
    return isinstance(at, Inside) and user not in staying


async def _join(room: WaitingRoom, user: str) -> None:
    while True:
        with suppress(Unavailable):
            await room.join(user)
            return


async def _leave(room: WaitingRoom, database: Database, user: str) -> None:
    with suppress(Unavailable):  # he is still inside then, and seen there again
        standing = await room.line.look(user)
        if isinstance(standing, Inside):
            entry = Entry(user, standing.admission)
            await database.transaction(leave, ROOM, entry)
            await room.doors.release([entry], "left")


async def _opened(url: str) -> Database:
    while True:
        with suppress(Unavailable):
            return await Database.open(url, connections=4)


async def main(part: str, database_url: str, valkey_url: str, *rest: str) -> None:
    """Play one part."""
    configure("console", "error")
    async with connected(valkey_url) as valkey, await _opened(database_url) as database:
        reception = Reception(valkey, database, open_office, SETTINGS)
        print("there", flush=True)
        if part == "admit":
            await admit(reception, valkey)
        else:
            name, people, leaving = rest
            await crowd(await reception.room(ROOM), database, name, int(people), float(leaving))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
