"""All rooms of an installation: made, opened, closed, and found by name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tidegate.core.errors import InvalidArgument, NotFound, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import rooms, tokens
from tidegate.systems.waiting_room.admission import Doors
from tidegate.systems.waiting_room.keeper import RoomKeeper, RoomKeepers
from tidegate.systems.waiting_room.keys import new_rooms, room_keys
from tidegate.systems.waiting_room.line import Census, Line
from tidegate.systems.waiting_room.passes import PassOffice
from tidegate.systems.waiting_room.recovery import Recovery
from tidegate.systems.waiting_room.rooms import Room, RoomState
from tidegate.systems.waiting_room.settings import RoomPlan, WaitingRoomSettings
from tidegate.systems.waiting_room.waiting_room import WaitingRoom

log = get_logger(__name__)

_REMOVED_AT_ONCE = 1000
"""Rows: short transactions, between which others write."""


class RoomStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A room, for those who look after it."""

    name: str
    state: RoomState
    opens_at: datetime | None
    plan: RoomPlan
    commitment: str
    """The SHA-256 of the seed of its draw."""
    seed: str | None
    """The seed itself, once the start has come."""
    census: Census


class Reception:
    """The rooms of one installation. What changes a room is written to SQL, and then installed on the server.

    Whoever dies in between leaves the old rules on the server; the next admission finds that out, and so does whoever
    begins to lead, or the same command again.
    """

    def __init__(
        self,
        valkey: Valkey,
        database: Database,
        open_office: Callable[[], Awaitable[PassOffice]],
        settings: WaitingRoomSettings | None = None,
    ) -> None:
        """`open_office` is awaited when the first room is asked for: it may make a key, which others need not."""
        self.valkey, self._database, self._open_office = valkey, database, open_office
        self._settings = settings or WaitingRoomSettings()
        self._known: dict[str, WaitingRoom] = {}

    async def room(self, name: str) -> WaitingRoom:
        """A room by its name; raise `NotFound`. It is read once, so that people can wait while the database is away."""
        found = self._known.get(name)
        if found is None or found.is_deleted:
            self._known.pop(name, None)
            room, office = await self._database.read(rooms.get, name), await self._open_office()
            found = self._known[name] = self._put_together(room, office)
        return found

    async def everything(self) -> list[Room]:
        """All rooms, by name."""
        return await self._database.read(rooms.everything)

    async def create(self, name: str, plan: RoomPlan) -> WaitingRoom:
        """Make a room, closed; raise `RoomExists`."""
        await self._database.transaction(rooms.create, name, plan)
        room = await self._installed(name)
        await Wakeup(self.valkey, new_rooms(self.valkey)).notify()
        return room

    async def open(self, name: str, opens_at: datetime | None = None) -> WaitingRoom:
        """Let people come. Until `opens_at` (by default now) places are drawn, and nobody is let in."""
        if opens_at is not None and opens_at.tzinfo is None:
            raise InvalidArgument("opens_at", opens_at.isoformat(), "must say its time zone")
        await self._database.transaction(rooms.open_, name, opens_at)
        return await self._installed(name)

    async def close(self, name: str) -> WaitingRoom:
        """Let nobody come, and nobody in. Who waits keeps his place, with signs of life; who is inside stays."""
        await self._database.transaction(rooms.close, name)
        return await self._installed(name)

    async def alter(self, name: str, plan: RoomPlan) -> WaitingRoom:
        """Give a room another plan; a smaller capacity sends nobody out."""
        await self._database.transaction(rooms.alter, name, plan)
        return await self._installed(name)

    async def amend(self, name: str, changes: Mapping[str, Any]) -> WaitingRoom:
        """Change some fields of a room's plan; the others stay what they are, also where somebody changes them now."""
        await self._database.transaction(rooms.amend, name, changes)
        return await self._installed(name)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a room with its line and the records of its admissions; raise `NotFound` or `RoomInUse`.

        The room must be closed and, without `force`, empty. Safe to repeat: a call that was cut off leaves a closed
        room with a part of its records, or keys on the server, which the same call removes.
        """
        if not force:
            await self._database.read(tokens.require_empty, name)
        try:
            while await self._database.transaction(_remove_records, name):
                pass
            await self._database.transaction(_remove_room, name)
        finally:  # also where the row is gone already, and a former call was cut off here
            if not await self._database.read(_exists, name):
                await self.valkey.execute("UNLINK", *room_keys(self.valkey, name).values())
        self._known.pop(name, None)
        await Wakeup(self.valkey, new_rooms(self.valkey)).notify()
        log.info("room.deleted", room=name)

    async def status(self, name: str) -> RoomStatus:
        """How a room is."""
        room, waiting_room = await self._database.read(rooms.get, name), await self.room(name)
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

    async def censuses(self, names: Sequence[str]) -> list[Census | None]:
        """How many are where, in each of these rooms; None where that cannot be found out now."""
        return list(await asyncio.gather(*(self._census(name) for name in names)))

    async def _census(self, name: str) -> Census | None:
        try:
            return await (await self.room(name)).census()
        except (Unavailable, NotFound):
            return None

    def keepers(self) -> RoomKeepers:
        """The duty of the leader that keeps all rooms."""
        return RoomKeepers(self.valkey, self._database, self.keeper)

    def keeper(self, name: str, fence: int = 0) -> RoomKeeper:
        """The keeper of one room, for the leader with this fencing number."""
        line = Line(self.valkey, name, self._database.clock)
        doors = Doors(self.valkey, self._database, name, self._settings, fence=fence)
        return RoomKeeper(self.valkey, line, doors, Recovery(self.valkey, self._database, doors))

    async def _installed(self, name: str) -> WaitingRoom:
        waiting_room = await self.room(name)
        waiting_room.room = await waiting_room.recovery.install()
        log.info("room.changed", room=name, state=waiting_room.room.state.value)
        return waiting_room

    def _put_together(self, room: Room, office: PassOffice) -> WaitingRoom:
        doors = Doors(self.valkey, self._database, room.name, self._settings)
        recovery = Recovery(self.valkey, self._database, doors)
        return WaitingRoom(room, self.valkey, self._database, office, doors=doors, recovery=recovery)


def _remove_records(tx: Transaction, name: str) -> int:
    rooms.require_closed(tx, name)
    return tokens.remove(tx, name, _REMOVED_AT_ONCE)


def _remove_room(tx: Transaction, name: str) -> None:
    """With the rows that were written meanwhile: the lock of the room's row keeps further ones out."""
    rooms.remove(tx, name)
    while tokens.remove(tx, name, _REMOVED_AT_ONCE):
        pass


def _exists(tx: Transaction, name: str) -> bool:
    try:
        rooms.get(tx, name)
    except NotFound:
        return False
    return True
