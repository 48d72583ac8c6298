"""A leader of the tests: admits with a fencing number until a later leader replaces it, then prints `deposed`.

At one step of an admission it prints the name of the step and reads a line from its input before it goes on: `taking`
(before the first step), `taken`, `writing` (inside the transaction), `written` or `told`; `none` waits nowhere.
Arguments: database, Valkey server, fencing number, step.
"""

import asyncio
import sys
from typing import Any

from tests.systems.waiting_room.venue import ROOM
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey.connection import connected
from tidegate.systems.waiting_room import WaitingRoomSettings, tokens
from tidegate.systems.waiting_room.admission import Deposed, Doors, Taken
from tidegate.systems.waiting_room.line import UnknownRoom
from tidegate.systems.waiting_room.recovery import Recovery
from tidegate.systems.waiting_room.tokens import Sorted, VoidEpoch

BY_FIVES = WaitingRoomSettings(admitted_at_once=5)


class SteppedDoors(Doors):
    """Waits at one step, the first time it gets there."""

    step = "none"

    async def take(self) -> Taken:
        self.reach("taking")
        taken = await super().take()
        if taken.entries:
            self.reach("taken")
        return taken

    async def write(self, taken: Taken) -> Sorted:
        found = await super().write(taken)
        self.reach("written")
        return found

    async def tell(self, found: Sorted) -> None:
        await super().tell(found)
        self.reach("told")

    def reach(self, step: str) -> None:
        """The whole process waits, as one that is stopped does."""
        if step == self.step:
            self.step = "none"
            print(step, flush=True)
            sys.stdin.readline()


async def main(database_url: str, valkey_url: str, fence: str, step: str) -> None:
    async with connected(valkey_url) as valkey, await Database.open(database_url) as database:
        doors = SteppedDoors(valkey, database, ROOM, BY_FIVES, fence=int(fence))
        doors.step, admit = step, tokens.admit

        def admit_in_steps(tx: Transaction, *rest: Any) -> Sorted:
            found = admit(tx, *rest)
            doors.reach("writing")
            return found

        tokens.admit = admit_in_steps
        recovery, bell = Recovery(valkey, database, doors), Wakeup(valkey, doors.keys["wake"])
        try:
            await recovery.install()
            while True:
                try:
                    taken = await doors.admit()
                except (UnknownRoom, VoidEpoch):
                    await recovery.install()
                else:
                    if not taken.entries:
                        await bell.wait(0.2)
        except Deposed:
            print("deposed", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
