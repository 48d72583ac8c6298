"""Services of the leader for rooms: admit visitors, end sessions, remove visitors without a sign of life.

Event-driven; there is no polling interval. Each room has a wake-up, which is sent whenever a visitor may be admitted,
and each step returns when the next one is due.
"""

import asyncio
from collections.abc import Callable

from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import forget
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
from tidegate.systems.waiting_room.metrics import ROOM_ENDED, ROOM_WAITING, forget_room
from tidegate.systems.waiting_room.model import EpochReplaced, UnknownRoom
from tidegate.systems.waiting_room.scripts import room_created_key

log = get_logger(__name__)
_LISTEN_S = 120.0


class RoomWorker:
    """Runs one room: a due source for a timekeeper that waits for the room's wake-up."""

    def __init__(self, valkey: Valkey, line: WaitingLine, admitter: Admitter, installer: RoomInstaller) -> None:
        self._valkey, self._line, self._admitter, self._installer = valkey, line, admitter, installer
        self._installed_at_loss: int | None = None
        """`Valkey.losses` when the room was last known to be installed; None: an admission may be in progress."""
        ROOM_ENDED.labels(line.room, "rolled_back")  # exported as 0 first, so that an alert sees the increase

    @property
    def wake(self) -> Key:
        """Key of the wake-up for which the timekeeper waits."""
        return self._line.keys["wake"]

    def begin(self) -> None:
        """Install the room first, since a previous leader may have died during an admission."""
        self._installed_at_loss = None

    async def fire(self) -> int | None:
        """Do what is due; return after how many ms more is due, or None if that depends on a wake-up."""
        losses = self._valkey.losses
        try:
            if self._installed_at_loss != losses:
                # The server may have lost its last writes while it was unavailable; SQL knows the sessions.
                await self._installer.install()
            self._installed_at_loss = None  # a failed step may leave an admission in progress: install again
            next_in_ms = await self._turn()
        # Call again at once: `_installed_at_loss` is None or outdated, so the next call installs the room.
        except (UnknownRoom, EpochReplaced):
            return 0
        except NotFound:
            return None  # the room was deleted; `RoomWorkers` is woken and ends this worker
        except LeaderReplaced as error:
            # Another process leads. This service is stopped when the leadership of its process ends.
            log.warning("room.leader_replaced", room=error.room, fence=error.fence)
            return None
        self._installed_at_loss = losses
        return next_in_ms

    async def _turn(self) -> int | None:
        """Remove silent visitors, end sessions, and admit; return after how many ms the next step is due."""
        # Remove silent visitors and free places first, so that the admission finds the line and the
        # capacity as they are now.
        dropped, silent_in_ms = await self._line.sweep()
        ROOM_ENDED.labels(self._line.room, "dropped").inc(dropped)
        due = await self._admitter.due()
        if due.overdue:
            await self._admitter.settle(due.overdue)
        if due.ended:
            await self._admitter.expire(due.ended)
        admitted = await self._admitter.admit()
        ROOM_WAITING.labels(self._line.room).set(admitted.waiting)
        # Reserve the next block while half of the last one is left. An installation voids admissions
        # in progress; none is now.
        if admitted.needs_numbers:
            await self._installer.install()
        if due.overdue or due.ended:
            return 0  # renewed sessions have a new end, which is not known here yet
        return min((ms for ms in (silent_in_ms, due.next_in_ms, admitted.next_in_ms) if ms is not None), default=None)

    def __repr__(self) -> str:
        return f"RoomKeeper({self._line.room!r})"


class RoomWorkers:
    """Runs a worker for every room, including rooms that are created later; a service of the leader."""

    def __init__(self, valkey: Valkey, database: Database, make: Callable[[str, int], RoomWorker]) -> None:
        """`make` builds the worker of a room for the leader with a fencing number."""
        self._valkey, self._database, self._make = valkey, database, make
        self._wakeup = Wakeup(valkey, room_created_key(valkey))

    async def run(self, stopping: asyncio.Event) -> None:
        """Run the workers until `stopping` is set."""
        kept: dict[str, asyncio.Task[bool]] = {}
        # A former leader that is frozen may still be blocked at this wake-up and would take the next signal.
        await self._wakeup.claim()
        try:
            while not stopping.is_set():
                present = {room.name for room in await self._database.read(room_store.list_rooms)}
                for name in kept.keys() - present:
                    # The room was deleted.
                    await end(kept.pop(name))
                    forget_room(name)
                for name in present - kept.keys():
                    kept[name] = self._keep(name, stopping)
                await unless(stopping, self._wakeup.wait(_LISTEN_S))
            await asyncio.gather(*kept.values())
        finally:
            await end(*kept.values())
            forget(ROOM_WAITING)  # from now on another process exports these gauges

    def _keep(self, room: str, stopping: asyncio.Event) -> asyncio.Task[bool]:
        keeper = self._make(room, leader_fence())
        timekeeper = Timekeeper(Wakeup(self._valkey, keeper.wake), [keeper], on_begin=keeper.begin)
        return asyncio.create_task(keep_running(f"room-{room}", timekeeper, stopping, restarts=Restarts()))
