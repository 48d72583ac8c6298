"""What the leader does for rooms: lets people in, ends sessions, drops who is gone. Nothing happens by a period.

Each room has a wakeup, which everything rings that can let somebody in; and each step tells when the next is due.
"""

import asyncio
from collections.abc import Callable

from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import ROOM_ENDED, ROOM_WAITING, forget, forget_room
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.leadership import leader_fence
from tidegate.runtime.service import Restarts, keep_running
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.runtime.waiting import end, unless
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Key, Valkey
from tidegate.systems.waiting_room import room_store
from tidegate.systems.waiting_room.admission import Admitter, LeaderReplaced
from tidegate.systems.waiting_room.installation import RoomInstaller
from tidegate.systems.waiting_room.line import WaitingLine
from tidegate.systems.waiting_room.model import UnknownRoom, VoidEpoch
from tidegate.systems.waiting_room.scripts import room_created_key

log = get_logger(__name__)
_LISTEN_S = 120.0


class RoomWorker:
    """Keeps one room: a source for a timekeeper at the room's wakeup."""

    def __init__(self, valkey: Valkey, line: WaitingLine, admitter: Admitter, installer: RoomInstaller) -> None:
        self._valkey, self._line, self._admitter, self._installer = valkey, line, admitter, installer
        self._installed_at_loss: int | None = None
        """Losses of the server when the room was last known to be installed; None: an admission may be in progress."""
        ROOM_ENDED.labels(line.room, "rolled_back")  # told as 0 at first: an alert sees an increase

    @property
    def wake(self) -> Key:
        """The wakeup at which its timekeeper waits."""
        return self._line.keys["wake"]

    def begin(self) -> None:
        """Install the room before anything else: a previous leader may have died in the middle of an admission."""
        self._installed_at_loss = None

    async def fire(self) -> int | None:
        """Do what can be done now; say in how many ms there is more, None where that depends on a ring."""
        losses = self._valkey.losses
        try:
            if self._installed_at_loss != losses:
                # A server that was away may have come back without its last moments: SQL knows who is inside.
                await self._installer.install()
            self._installed_at_loss = None  # a turn that fails may leave an admission in progress: install again
            next_in_ms = await self._turn()
        except (UnknownRoom, VoidEpoch):
            return 0
        except NotFound:
            return None  # the room was deleted; whoever keeps all rooms is told, and ends this
        except LeaderReplaced as error:
            # Another process leads. This one hears of it soon, and is told to stop.
            log.warning("room.keeper_deposed", room=error.room, fence=error.fence)
            return None
        self._installed_at_loss = losses
        return next_in_ms

    async def _turn(self) -> int | None:
        dropped, silent_in_ms = await self._line.sweep()
        ROOM_ENDED.labels(self._line.room, "dropped").inc(dropped)
        due = await self._admitter.due()
        if due.overdue:
            await self._admitter.settle(due.overdue)
        if due.ended:
            await self._admitter.expire(due.ended)
        admitted = await self._admitter.admit()
        ROOM_WAITING.labels(self._line.room).set(admitted.waiting)
        if admitted.needs_numbers:
            await self._installer.install()
        if due.overdue or due.ended:
            return 0  # what was prolonged is due at a time that nobody has looked at yet
        return min((ms for ms in (silent_in_ms, due.next_in_ms, admitted.next_in_ms) if ms is not None), default=None)

    def __repr__(self) -> str:
        return f"RoomKeeper({self._line.room!r})"


class RoomWorkers:
    """Keeps every room, also those that are made meanwhile; a duty of the leader."""

    def __init__(self, valkey: Valkey, database: Database, make: Callable[[str, int], RoomWorker]) -> None:
        """`make` builds the keeper of a room for the leader with a fencing number."""
        self._valkey, self._database, self._make = valkey, database, make
        self._wakeup = Wakeup(valkey, room_created_key(valkey))

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep them until told to stop."""
        kept: dict[str, asyncio.Task[bool]] = {}
        await self._wakeup.claim()
        try:
            while not stopping.is_set():
                present = {room.name for room in await self._database.read(room_store.list_rooms)}
                for name in kept.keys() - present:
                    await end(kept.pop(name))
                    forget_room(name)
                for name in present - kept.keys():
                    kept[name] = self._keep(name, stopping)
                await unless(stopping, self._wakeup.wait(_LISTEN_S))
            await asyncio.gather(*kept.values())
        finally:
            await end(*kept.values())
            forget(ROOM_WAITING)  # from now on it is another process that sees the lines

    def _keep(self, room: str, stopping: asyncio.Event) -> asyncio.Task[bool]:
        keeper = self._make(room, leader_fence())
        timekeeper = Timekeeper(Wakeup(self._valkey, keeper.wake), [keeper], on_begin=keeper.begin)
        return asyncio.create_task(keep_running(f"room-{room}", timekeeper, stopping, restarts=Restarts()))
