"""The line of a room on the Valkey server: join, find positions, leave, and remove visitors without a sign of life.

Nothing here needs SQL, so visitors can join and wait while the database is unavailable, unless the server was restarted
since the room was installed.
"""

from collections.abc import Sequence
from typing import Any

from tidegate.core.arguments import require_at_most
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import ContractBroken
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import scripts
from tidegate.systems.waiting_room.estimate import LineMove
from tidegate.systems.waiting_room.model import (
    Entering,
    InLine,
    Inside,
    LineClosed,
    LineView,
    NotPresent,
    RoomCensus,
    Standing,
    UnknownRoom,
    UnverifiedClaim,
    require_user,
)
from tidegate.systems.waiting_room.scripts import room_keys

_LARGEST_BATCH = 10_000
_AT_ONCE = 500
"""Visitors per call of a script, which takes a few milliseconds; the server does nothing else meanwhile."""
_STEPS_SEEN = 512


class WaitingLine:
    """The line of one room. Every method raises `UnknownRoom` if the server does not have the room."""

    def __init__(self, valkey: Valkey, room: str, clock: Clock | None = None) -> None:
        self.room, self.keys = room, room_keys(valkey, room)
        self._valkey, self._clock = valkey, clock or SystemClock()
        self.epoch = 0
        """Epoch in the last reply of the server; a caller that knows an older epoch has an outdated room."""

    async def join(
        self, user: str, claim: int | None = None, *, has_claim: bool = False, sql_epoch: int = 0
    ) -> Standing | LineClosed | UnverifiedClaim:
        """Add a visitor to the end of the line, or return where the visitor already stands.

        `has_claim` says that the visitor shows a pass for a place that is not in the line any more: the reply is then
        `UnverifiedClaim`, and SQL has to be asked. `claim` is that place, after SQL found that it was not used; the
        reply is `UnverifiedClaim` again if SQL was read before the server's `sql_epoch`.
        """
        reply = await scripts.join(
            self._valkey,
            user=require_user(user),
            # `?`: the visitor shows a pass. With a place, the epoch says how old the answer of SQL is.
            claim="?" if has_claim else "" if claim is None else f"{claim}|{sql_epoch}",
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"waiting", place, rank, is_new, opens_in_ms, epoch]:
                self.epoch = epoch
                ahead = None if rank < 0 else rank
                return InLine(place=place, ahead=ahead, opens_in_ms=opens_in_ms, is_new=bool(is_new))
            case [b"claim", told]:
                return UnverifiedClaim(told)
            case [b"closed"]:
                return LineClosed()
            case _:
                return _standing(reply)

    async def look(self, user: str) -> Standing:
        """Return where a visitor stands, and record a sign of life."""
        return (await self.look_at([user])).standings[0]

    async def look_at(self, users: Sequence[str]) -> LineView:
        """Return where several visitors stand, and record a sign of life of each. Long lists are split into several
        calls."""
        require_at_most("len(users)", len(users), _LARGEST_BATCH)
        crowd = await self._look_at(users[:_AT_ONCE])
        for start in range(_AT_ONCE, len(users), _AT_ONCE):
            more = await self._look_at(users[start : start + _AT_ONCE])
            crowd = LineView(more.waiting, more.opens_in_ms, crowd.standings + more.standings)
        return crowd

    async def _look_at(self, users: Sequence[str]) -> LineView:
        reply = await scripts.look(
            self._valkey,
            users=[require_user(user) for user in users],
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"seen", opens_in_ms, waiting, found, epoch]:
                self.epoch = epoch
                return LineView(waiting, opens_in_ms, [_standing(each, opens_in_ms) for each in found])
            case _:
                raise UnknownRoom(self.room)

    async def leave(self, user: str) -> Standing:
        """Remove a visitor from the line. Returns `NotPresent`, or where the visitor is if already admitted or being
        admitted."""
        reply = await scripts.leave(
            self._valkey,
            user=require_user(user),
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"left", _]:
                return NotPresent()
            case _:
                return _standing(reply)

    async def sweep(self, most: int = _AT_ONCE) -> tuple[int, int | None]:
        """Remove visitors without a sign of life. Returns how many, and after how many ms the next can be due."""
        reply = await scripts.sweep(
            self._valkey,
            most=most,
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"swept", dropped, wait_ms]:
                return dropped, None if wait_ms < 0 else wait_ms
            case _:
                raise UnknownRoom(self.room)

    async def moves(self) -> tuple[list[LineMove], int]:
        """Return the last steps in which visitors were admitted, and the time of the server's clock, by which they are
        measured."""
        now_ms, flat = await scripts.pace(
            self._valkey,
            most=_STEPS_SEEN,
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        return [LineMove(*flat[at : at + 3]) for at in range(0, len(flat), 3)], now_ms

    async def census(self) -> RoomCensus:
        """Count the visitors in each state."""
        reply = await scripts.status(
            self._valkey,
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"room", waiting, entering, active, guests, opens_in_ms]:
                return RoomCensus(
                    waiting=waiting,
                    entering=entering,
                    active=active,
                    guests=guests,
                    opens_in_ms=opens_in_ms,
                )
            case _:
                raise UnknownRoom(self.room)


def _standing(reply: list[Any], opens_in_ms: int = 0) -> Standing:
    match reply:
        case [b"waiting", place, rank]:
            return InLine(place=place, ahead=None if rank < 0 else rank, opens_in_ms=opens_in_ms)
        case [b"entering", admission, *place]:
            return Entering(admission, *place)
        case [b"active", admission, left_ms]:
            return Inside(admission, left_ms)
        case [b"nowhere"]:
            return NotPresent()
        case [b"unknown"]:
            raise UnknownRoom
        case _:
            raise ContractBroken(f"the line replied {reply!r}")
