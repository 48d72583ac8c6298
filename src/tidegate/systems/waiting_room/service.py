"""All rooms of an installation: made, opened, closed, and found by name."""

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
from tidegate.systems.waiting_room.model import Room, RoomCensus, RoomPlan, RoomStatus
from tidegate.systems.waiting_room.passes import PassSigner
from tidegate.systems.waiting_room.scripts import room_created_key, room_keys
from tidegate.systems.waiting_room.settings import WaitingRoomSettings
from tidegate.systems.waiting_room.waiting_room import WaitingRoom
from tidegate.systems.waiting_room.worker import RoomWorker, RoomWorkers

log = get_logger(__name__)
_REMOVED_AT_ONCE = 1000
"""Rows: short transactions, between which others write."""


class WaitingRooms:
    """The rooms of one installation. What changes a room is written to SQL, and then installed on the server.

    Whoever dies in between leaves the old rules on the server; the next admission finds that out, and so does whoever
    begins to lead, or the same command again.
    """

    def __init__(
        self,
        valkey: Valkey,
        database: Database,
        open_signer: Callable[[], Awaitable[PassSigner]],
        settings: WaitingRoomSettings | None = None,
    ) -> None:
        """`open_signer` is awaited when the first room is asked for: it may make a key, which others need not."""
        self.valkey, self._database, self._open_signer = valkey, database, open_signer
        self._settings = settings or WaitingRoomSettings()
        self._known: dict[str, WaitingRoom] = {}

    async def room(self, name: str) -> WaitingRoom:
        """A room by its name; raise `NotFound`. It is read once, so that people can wait while the database is away."""
        found = self._known.get(name)
        if found is None or found.is_deleted:
            self._known.pop(name, None)
            room, signer = await self._database.read(room_store.get, name), await self._open_signer()
            found = self._known[name] = self._assemble(room, signer)
        return found

    async def everything(self) -> list[Room]:
        """All rooms, by name."""
        return await self._database.read(room_store.list_rooms)

    async def create(self, name: str, plan: RoomPlan) -> WaitingRoom:
        """Make a room, closed; raise `RoomExists`."""
        await self._database.transaction(room_store.create, name, plan)
        room = await self._installed(name)
        await Wakeup(self.valkey, room_created_key(self.valkey)).notify()
        return room

    async def open(self, name: str, opens_at: datetime | None = None) -> WaitingRoom:
        """Let people come. Until `opens_at` (by default now) places are drawn, and nobody is let in."""
        if opens_at is not None and opens_at.tzinfo is None:
            raise InvalidArgument("opens_at", opens_at.isoformat(), "must say its time zone")
        await self._database.transaction(room_store.open_, name, opens_at)
        return await self._installed(name)

    async def close(self, name: str) -> WaitingRoom:
        """Let nobody come, and nobody in. Who waits keeps his place, with signs of life; who is inside stays."""
        await self._database.transaction(room_store.close, name)
        return await self._installed(name)

    async def alter(self, name: str, plan: RoomPlan) -> WaitingRoom:
        """Give a room another plan; a smaller capacity sends nobody out."""
        await self._database.transaction(room_store.alter, name, plan)
        return await self._installed(name)

    async def amend(self, name: str, changes: Mapping[str, Any]) -> WaitingRoom:
        """Change some fields of a room's plan; the others stay what they are, also where somebody changes them now."""
        await self._database.transaction(room_store.amend, name, changes)
        return await self._installed(name)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a room with its line and the records of its admissions; raise `NotFound` or `RoomInUse`.

        The room must be closed and, without `force`, empty. Safe to repeat: a call that was cut off leaves a closed
        room with a part of its records, or keys on the server, which the same call removes.
        """
        if not force:
            await self._database.read(session_store.require_empty, name)
        try:
            while await self._database.transaction(_remove_records, name):
                pass
            await self._database.transaction(_remove_room, name)
        finally:  # also where the row is gone already, and a former call was cut off here
            if not await self._database.read(_exists, name):
                await self.valkey.execute("UNLINK", *room_keys(self.valkey, name).values())
        self._known.pop(name, None)
        await Wakeup(self.valkey, room_created_key(self.valkey)).notify()
        log.info("room.deleted", room=name)

    async def status(self, name: str) -> RoomStatus:
        """How a room is."""
        room, waiting_room = await self._database.read(room_store.get, name), await self.room(name)
        census = await waiting_room.census()
        # By both clocks: that of the server decides who is drawn.
        seed = None if census.opens_in_ms > 0 else room.shown_seed(self._database.clock.now())
        return RoomStatus(
            name=room.name,
            state=room.state,
            opens_at=room.opens_at,
            plan=room.plan,
            commitment=room.commitment,
            seed=seed,
            census=census,
        )

    async def censuses(self, names: Sequence[str]) -> list[RoomCensus | None]:
        """How many are where, in each of these rooms; None where that cannot be found out now."""
        return list(await asyncio.gather(*(self._census(name) for name in names)))

    async def _census(self, name: str) -> RoomCensus | None:
        try:
            return await (await self.room(name)).census()
        except (Unavailable, NotFound):
            return None

    def workers(self) -> RoomWorkers:
        """The duty of the leader that keeps all rooms."""
        return RoomWorkers(self.valkey, self._database, self.worker)

    def worker(self, name: str, fence: int = 0) -> RoomWorker:
        """The keeper of one room, for the leader with this fencing number."""
        line = WaitingLine(self.valkey, name, self._database.clock)
        admitter = Admitter(self.valkey, self._database, name, self._settings, fence=fence)
        return RoomWorker(self.valkey, line, admitter, RoomInstaller(self.valkey, self._database, admitter))

    async def _installed(self, name: str) -> WaitingRoom:
        waiting_room = await self.room(name)
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
    """With the rows that were written meanwhile: the lock of the room's row keeps further ones out."""
    room_store.remove(tx, name)
    while session_store.remove(tx, name, _REMOVED_AT_ONCE):
        pass


def _exists(tx: Transaction, name: str) -> bool:
    try:
        room_store.get(tx, name)
    except NotFound:
        return False
    return True
