"""A process that lets people in, as far as it is told (`take`, `write` or `tell`), says so, and waits for its end.

`keep` does it again and again. Arguments: database, Valkey server, how far.
"""

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta

from tests.crowd.waiting_room.venue import ROOM
from tidegate.crowd.waiting_room import WaitingRoomSettings
from tidegate.crowd.waiting_room.admission import Doors
from tidegate.crowd.waiting_room.tokens import Entry, leave
from tidegate.database import Database, Transaction
from tidegate.flow.doorbell import Doorbell
from tidegate.valkey.connection import connected

BRIEFLY = WaitingRoomSettings(settle_after=timedelta(seconds=1), admitted_at_once=5)


async def main(database_url: str, valkey_url: str, how_far: str) -> None:
    async with connected(valkey_url) as valkey, await Database.open(database_url) as database:
        doors = Doors(valkey, database, ROOM, BRIEFLY)
        while how_far == "keep":
            taken = await doors.admit()
            await database.transaction(_all_leave, taken.entries)
            await doors.release(taken.entries, "left")
            if not taken.entries and not taken.waiting:
                print("done", flush=True)
                break
            if not taken.entries:
                await Doorbell(valkey, doors.keys["wake"]).wait(0.2)
        else:
            taken = await doors.take()
            if how_far != "take":
                found = await doors.write(taken)
                if how_far == "tell":
                    await doors.tell(found)
            print(how_far, flush=True)
        await asyncio.Event().wait()


def _all_leave(tx: Transaction, entries: Sequence[Entry]) -> None:
    for entry in entries:
        leave(tx, ROOM, entry)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
