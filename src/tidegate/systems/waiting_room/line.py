"""The line before a room, on the server: join, see where one stands, give signs of life, leave.

Nothing here needs SQL: people can come and wait while the database is away, unless the server was started again since.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.core.arguments import normalise_id, require_at_most, require_name
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import ContractBroken
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import scripts
from tidegate.systems.waiting_room.estimate import Move
from tidegate.systems.waiting_room.keys import room_keys
from tidegate.systems.waiting_room.tables import LONGEST_USER

_LARGEST_BATCH = 10_000
_AT_ONCE = 500
"""So many are looked at in one step: some milliseconds, in which the server does nothing else."""
_STEPS_SEEN = 512


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """In line."""

    place: int
    ahead: int | None
    """How many are before him; None before the opening, when nobody has a position."""
    opens_in_ms: int = 0
    is_new: bool = False


class Entering(msgspec.Struct, frozen=True):
    """On the way in: in a moment he is inside, or has his place again."""

    admission: int
    place: int | None = None
    """None: he did not wait."""


class Inside(msgspec.Struct, frozen=True):
    """In the room."""

    admission: int
    left_ms: int
    """How long the session lasts if nothing prolongs it."""


class Nowhere(msgspec.Struct, frozen=True):
    """Neither in line nor inside: never was, or no longer is."""


class Closed(msgspec.Struct, frozen=True):
    """Nobody may join now."""


class Claimed(msgspec.Struct, frozen=True):
    """Not in line; whether an older place is his has to be seen in SQL."""

    truth: int
    """What the server was last told by SQL: when it is told anew, what SQL says now is old."""


Standing = Waiting | Entering | Inside | Nowhere


class Crowd(msgspec.Struct, frozen=True):
    """Many at once."""

    waiting: int
    """The length of the line."""
    opens_in_ms: int
    standings: list[Standing]


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """How many are where."""

    waiting: int
    entering: int
    active: int
    guests: int
    """Of those on the way or inside, how many do not count against the capacity."""
    opens_in_ms: int


class UnknownRoom(Exception):
    """The server does not have the room: it lost its data, or was never told."""


class Line:
    """The line before one room. Every method raises `UnknownRoom` where the server does not have it."""

    def __init__(self, valkey: Valkey, room: str, clock: Clock | None = None) -> None:
        self.room, self.keys = room, room_keys(valkey, room)
        self._valkey, self._clock = valkey, clock or SystemClock()
        self.epoch = 0
        """As the server last told it: whoever knows the room by an older one knows an older room."""

    async def join(
        self, user: str, claim: int | None = None, *, has_claim: bool = False, truth: int = 0
    ) -> Standing | Closed | Claimed:
        """Come to the end of the line; who is there, or further, is told where.

        `has_claim` says that a place was his before: he is then given none, but `Claimed`, and SQL has to be asked.
        `claim` is that place, if nobody was let in from there; where what SQL said is older than the server's `truth`,
        he is `Claimed` again.
        """
        reply = await scripts.join(
            self._valkey,
            user=require_user(user),
            claim="?" if has_claim else "" if claim is None else f"{claim}|{truth}",
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"waiting", place, rank, is_new, opens_in_ms, epoch]:
                self.epoch = epoch
                ahead = None if rank < 0 else rank
                return Waiting(place=place, ahead=ahead, opens_in_ms=opens_in_ms, is_new=bool(is_new))
            case [b"claim", told]:
                return Claimed(told)
            case [b"closed"]:
                return Closed()
            case _:
                return _standing(reply)

    async def look(self, user: str) -> Standing:
        """Where one stands; to ask is a sign of life."""
        return (await self.look_at([user])).standings[0]

    async def look_at(self, users: Sequence[str]) -> Crowd:
        """Where many stand, in calls that do not hold the server for long."""
        require_at_most("len(users)", len(users), _LARGEST_BATCH)
        crowd = await self._look_at(users[:_AT_ONCE])
        for start in range(_AT_ONCE, len(users), _AT_ONCE):
            more = await self._look_at(users[start : start + _AT_ONCE])
            crowd = Crowd(more.waiting, more.opens_in_ms, crowd.standings + more.standings)
        return crowd

    async def _look_at(self, users: Sequence[str]) -> Crowd:
        reply = await scripts.look(
            self._valkey,
            users=[require_user(user) for user in users],
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"seen", opens_in_ms, waiting, found, epoch]:
                self.epoch = epoch
                return Crowd(waiting, opens_in_ms, [_standing(each, opens_in_ms) for each in found])
            case _:
                raise UnknownRoom(self.room)

    async def touch(self, numbers: Sequence[int]) -> int:
        """Signs of life of many, by their arrival numbers; how many of them wait."""
        require_at_most("len(numbers)", len(numbers), _LARGEST_BATCH)
        touched = 0
        for start in range(0, len(numbers), _AT_ONCE):
            touched += await scripts.touch(
                self._valkey,
                numbers=numbers[start : start + _AT_ONCE],
                now_ms=self._clock.pinned_ms,
                **self.keys,
            )
        return touched

    async def leave(self, user: str) -> Standing:
        """Leave the line: `Nowhere` then, or where he is if he is further than that."""
        reply = await scripts.leave(
            self._valkey,
            user=require_user(user),
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"left", _]:
                return Nowhere()
            case _:
                return _standing(reply)

    async def sweep(self, most: int = _AT_ONCE) -> tuple[int, int | None]:
        """Drop who is gone: how many, and in how many ms there can be more."""
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

    async def moves(self) -> tuple[list[Move], int]:
        """The last steps in which people were let in, and the time by the server's clock, which alone measures them."""
        now_ms, flat = await scripts.pace(
            self._valkey,
            most=_STEPS_SEEN,
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        return [Move(*flat[at : at + 3]) for at in range(0, len(flat), 3)], now_ms

    async def census(self) -> Census:
        """How many are where."""
        reply = await scripts.status(
            self._valkey,
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"room", waiting, entering, active, guests, opens_in_ms]:
                return Census(
                    waiting=waiting,
                    entering=entering,
                    active=active,
                    guests=guests,
                    opens_in_ms=opens_in_ms,
                )
            case _:
                raise UnknownRoom(self.room)


def require_user(user: str) -> str:
    """The id of a user, normalised; raise `InvalidArgument`."""
    return require_name("user", normalise_id("user", user, longest=LONGEST_USER))


def _standing(reply: list[Any], opens_in_ms: int = 0) -> Standing:
    match reply:
        case [b"waiting", place, rank]:
            return Waiting(place=place, ahead=None if rank < 0 else rank, opens_in_ms=opens_in_ms)
        case [b"entering", admission, *place]:
            return Entering(admission, *place)
        case [b"active", admission, left_ms]:
            return Inside(admission, left_ms)
        case [b"nowhere"]:
            return Nowhere()
        case [b"unknown"]:
            raise UnknownRoom
        case _:
            raise ContractBroken(f"the line replied {reply!r}")
