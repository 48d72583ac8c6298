"""A leader of the tests: admits with a fencing number until a later leader replaces it, then prints `deposed`.

At one step of an admission it prints the name of the step and reads a line from its input before it goes on: `taking`
(before the first step), `taken`, `writing` (inside the transaction), `written` or `told`; `none` waits nowhere.
Arguments: database, Valkey server, fencing number, step.
"""

import asyncio
import sys
from typing import Any

from tests.systems.waiting_room.harness import ROOM
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey.connection import connected
from tidegate.systems.waiting_room import WaitingRoomSettings, session_store
from tidegate.systems.waiting_room.admission import AdmissionBatch, Admitter, LeaderReplaced
from tidegate.systems.waiting_room.installation import RoomInstaller
from tidegate.systems.waiting_room.model import AdmissionResults, EpochReplaced, UnknownRoom

BY_FIVES = WaitingRoomSettings(admitted_at_once=5)


class SteppedAdmissions(Admitter):
    """Waits at one step, the first time it gets there."""

    step = "none"

    async def take(self) -> AdmissionBatch:
        self.reach("taking")
        taken = await super().take()
        if taken.entries:
            self.reach("taken")
        return taken

    async def write(self, taken: AdmissionBatch) -> AdmissionResults:
        found = await super().write(taken)
        self.reach("written")
        return found

    async def confirm(self, found: AdmissionResults) -> None:
        await super().confirm(found)
        self.reach("told")

    def reach(self, step: str) -> None:
        """The whole process waits, as one that is stopped does."""
        if step == self.step:
            self.step = "none"
            print(step, flush=True)
            sys.stdin.readline()


async def main(database_url: str, valkey_url: str, fence: str, step: str) -> None:
    async with connected(valkey_url) as valkey, await Database.open(database_url) as database:
        admitter = SteppedAdmissions(valkey, database, ROOM, BY_FIVES, fence=int(fence))
        admitter.step, admit = step, session_store.admit

        def admit_in_steps(tx: Transaction, *rest: Any) -> AdmissionResults:
            found = admit(tx, *rest)
            admitter.reach("writing")
            return found

        session_store.admit = admit_in_steps
        installer, bell = RoomInstaller(valkey, database, admitter), Wakeup(valkey, admitter.keys["wake"])
        try:
            await installer.install()
            while True:
                try:
                    taken = await admitter.admit()
                except (UnknownRoom, EpochReplaced):
                    await installer.install()
                else:
                    if not taken.entries:
                        await bell.wait(0.2)
        except LeaderReplaced:
            print("deposed", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
