"""The quick check of passes, before the database is used. The binding check is in SQL."""

from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
from examples.ticketing import reservations
from examples.ticketing.reservations import Reservation, room_of
from starlette.requests import Request

from tidegate import Database, NotFound, WaitingRoom
from tidegate.systems.waiting_room import Inside, NotActive, PassRefused, WaitingRooms, find_pass


class ActiveVisitor(msgspec.Struct, frozen=True):
    """A visitor that is inside."""

    user: str
    until: datetime
    """End of the session unless it is renewed."""


class AccessCheck:
    """Checks passes. There are no accounts in this example: the pass identifies the buyer."""

    def __init__(self, rooms: WaitingRooms, database: Database) -> None:
        self._rooms, self._database = rooms, database

    async def visit(self, request: Request, schedule_id: int) -> ActiveVisitor:
        """Return the visitor if inside, and renew the session. Raises `NotActive` or `NotFound`.

        SQL is asked while Valkey is unavailable, so visitors that are inside can continue to buy.
        """
        room = await self._room(schedule_id)
        shown = find_pass(request, room.name)
        if shown is None:
            raise NotActive(room.name, "a visitor without a pass")
        try:
            answer = await room.check(shown)
        except PassRefused:
            raise NotActive(room.name, "a visitor with a pass that is no good") from None
        if _left(answer.standing) < room.room.plan.session / 2:
            answer = await room.renew(shown)
        return ActiveVisitor(answer.user, self._database.clock.now() + _left(answer.standing))

    async def user(self, request: Request, schedule_id: int) -> str:
        """The same, where only the name counts."""
        return (await self.visit(request, schedule_id)).user

    async def reservation(self, request: Request) -> Reservation:
        """Return the reservation at this address, if it belongs to the visitor and the visitor is inside."""
        found = await self._database.read(reservations.get, request.path_params["reservation"])
        user = await self.user(request, found.schedule)
        return await self._database.read(reservations.get, found.id, user)

    async def leave(self, request: Request, schedule_id: int) -> None:
        """Leave the room; has no effect without a valid pass."""
        room = await self._room(schedule_id)
        shown = find_pass(request, room.name)
        if shown is not None:
            with suppress(PassRefused):
                await room.leave(shown)

    async def _room(self, schedule_id: int) -> WaitingRoom:
        try:
            return await self._rooms.room(room_of(schedule_id))
        except NotFound:
            raise NotFound("evening", schedule_id) from None  # the visitor knows nothing of rooms


def _left(standing: object) -> timedelta:
    return timedelta(milliseconds=standing.left_ms) if isinstance(standing, Inside) else timedelta()
