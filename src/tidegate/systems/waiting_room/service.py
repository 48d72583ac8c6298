"""All rooms of an installation: create, open, close, change, delete, and find them by name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tidegate.core.errors import InvalidArgument, NotFound, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import room_store, session_store
from tidegate.systems.waiting_room.admission import Admitter
from tidegate.systems.waiting_room.installation import RoomInstaller
from tidegate.systems.waiting_room.line import WaitingLine
from tidegate.systems.waiting_room.model import Room, RoomCounts, RoomPlan, RoomStatus
from tidegate.systems.waiting_room.passes import PassSigner
from tidegate.systems.waiting_room.scripts import room_created_key, room_keys
from tidegate.systems.waiting_room.settings import WaitingRoomSettings
from tidegate.systems.waiting_room.waiting_room import WaitingRoom
from tidegate.systems.waiting_room.worker import RoomWorker, RoomWorkers

log = get_logger(__name__)
_REMOVED_AT_ONCE = 1000
"""Rows per transaction: short ones, so that other writers are not delayed."""


class WaitingRooms:
    """The rooms of an installation. A change is written to SQL, and then installed on the server.

    If a process dies in between, the server keeps the old rules until the next admission, the next leader, or a
    repetition of the call installs the room.
    """

    def __init__(
        self,
        valkey: Valkey,
        database: Database,
        open_signer: Callable[[], Awaitable[PassSigner]],
        settings: WaitingRoomSettings | None = None,
    ) -> None:
        """`open_signer` is awaited when the first room is used, since it may create a key."""
        self.valkey, self._database, self._open_signer = valkey, database, open_signer
        self._settings = settings or WaitingRoomSettings()
        self._known: dict[str, WaitingRoom] = {}

    async def room(self, name: str) -> WaitingRoom:
        """Return a room. Raises `NotFound`. It is read once, so that visitors can wait while the database is
        unavailable."""
        found = self._known.get(name)
        if found is None or found.is_deleted:
            self._known.pop(name, None)
            room, signer = await self._database.read(room_store.get, name), await self._open_signer()
            found = self._known[name] = self._assemble(room, signer)
        return found

    async def everything(self) -> list[Room]:
        """Return all rooms, ordered by name."""
        return await self._database.read(room_store.list_rooms)

    async def create(self, name: str, plan: RoomPlan) -> WaitingRoom:
        """Create a closed room. Raises `RoomExists`."""
        await self._database.transaction(room_store.create, name, plan)
        # Install before the wake-up: the leader's worker finds a complete room.
        room = await self._installed(name)
        await Wakeup(self.valkey, room_created_key(self.valkey)).notify()
        return room

    async def open(self, name: str, opens_at: datetime | None = None) -> WaitingRoom:
        """Open a room. Visitors that join before `opens_at` (default: now) take part in a draw, and are not admitted
        before it."""
        if opens_at is not None and opens_at.tzinfo is None:
            raise InvalidArgument("opens_at", opens_at.isoformat(), "must have a time zone")
        await self._database.transaction(room_store.open_, name, opens_at)
        return await self._installed(name)

    async def close(self, name: str) -> WaitingRoom:
        """Close a room: visitors cannot join and are not admitted. Places with signs of life, and sessions, are
        kept."""
        await self._database.transaction(room_store.close, name)
        return await self._installed(name)

    async def replace_plan(self, name: str, plan: RoomPlan) -> WaitingRoom:
        """Replace the plan of a room. A smaller capacity ends no session."""
        await self._database.transaction(room_store.replace_plan, name, plan)
        return await self._installed(name)

    async def change_plan(self, name: str, changes: Mapping[str, Any]) -> WaitingRoom:
        """Change some fields of the plan of a room. Concurrent changes of other fields are kept."""
        await self._database.transaction(room_store.change_plan, name, changes)
        return await self._installed(name)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a room with its line and the records of its admissions. Raises `NotFound` or `RoomInUse`.

        The room must be closed and, without `force`, empty. Safe to repeat: an interrupted call leaves a closed room
        with a part of its records, or keys on the server, which the same call removes.
        """
        if not force:
            await self._database.read(session_store.require_empty, name)
        try:
            # Each transaction checks again that the room is closed: it may be opened between two of them.
            while await self._database.transaction(_remove_records, name):
                pass
            await self._database.transaction(_remove_room, name)
        finally:  # also when the row is deleted already and an earlier call was interrupted here
            if not await self._database.read(_exists, name):
                await self.valkey.execute("UNLINK", *room_keys(self.valkey, name).values())
        self._known.pop(name, None)
        await Wakeup(self.valkey, room_created_key(self.valkey)).notify()
        log.info("room.deleted", room=name)

    async def status(self, name: str) -> RoomStatus:
        """Return the state of a room, with counts of visitors."""
        room, waiting_room = await self._database.read(room_store.get, name), await self.room(name)
        counts = await waiting_room.counts()
        # By both clocks, since the clock of the server decides which visitors take part in the draw.
        seed = None if counts.opens_in_ms > 0 else room.shown_seed(self._database.clock.now())
        return RoomStatus(
            name=room.name,
            state=room.state,
            opens_at=room.opens_at,
            plan=room.plan,
            commitment=room.commitment,
            seed=seed,
            counts=counts,
        )

    async def all_counts(self, names: Sequence[str]) -> list[RoomCounts | None]:
        """Count the visitors of several rooms; None for a room that cannot be reached."""
        return list(await asyncio.gather(*(self._counts(name) for name in names)))

    async def _counts(self, name: str) -> RoomCounts | None:
        try:
            return await (await self.room(name)).counts()
        except (Unavailable, NotFound):
            return None

    def workers(self) -> RoomWorkers:
        """Return the leader's service that runs all rooms."""
        return RoomWorkers(self.valkey, self._database, self.worker)

    def worker(self, name: str, fence: int = 0) -> RoomWorker:
        """Return the worker of one room, for the leader with this fencing number."""
        line = WaitingLine(self.valkey, name, self._database.clock)
        admitter = Admitter(self.valkey, self._database, name, self._settings, fence=fence)
        return RoomWorker(self.valkey, line, admitter, RoomInstaller(self.valkey, self._database, admitter))

    async def _installed(self, name: str) -> WaitingRoom:
        waiting_room = await self.room(name)
        # Always install here, never share an installation in progress: that one may have read
        # the state before the change.
        waiting_room.room = await waiting_room.installer.install()
        log.info("room.changed", room=name, state=waiting_room.room.state.value)
        return waiting_room

    def _assemble(self, room: Room, signer: PassSigner) -> WaitingRoom:
        admitter = Admitter(self.valkey, self._database, room.name, self._settings)
        installer = RoomInstaller(self.valkey, self._database, admitter)
        return WaitingRoom(room, self.valkey, self._database, signer, admitter=admitter, installer=installer)


def _remove_records(tx: Transaction, name: str) -> int:
    room_store.require_closed(tx, name)
    return session_store.remove(tx, name, _REMOVED_AT_ONCE)


def _remove_room(tx: Transaction, name: str) -> None:
    """Delete the room, and rows that were written meanwhile; the lock on the room's row prevents further ones."""
    room_store.remove(tx, name)
    while session_store.remove(tx, name, _REMOVED_AT_ONCE):
        pass


def _exists(tx: Transaction, name: str) -> bool:
    try:
        room_store.get(tx, name)
    except NotFound:
        return False
    return True
