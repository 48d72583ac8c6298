"""The line of a room on the Valkey server: join, find positions, leave, and remove visitors without a sign of life.

Nothing here needs SQL, so visitors can join and wait while the database is unavailable, unless the server was restarted
since the room was installed. The wait of a visitor is estimated as an interval, from the recent speed of the line.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from tidegate.core.arguments import require_at_most, require_not_negative
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import ContractBroken
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import scripts
from tidegate.systems.waiting_room.model import (
    Entering,
    InLine,
    Inside,
    LineClosed,
    LineView,
    NotPresent,
    RoomCounts,
    Standing,
    UnknownRoom,
    UnverifiedClaim,
    require_user,
)
from tidegate.systems.waiting_room.scripts import room_keys

_LEAST_BATCHES = 2
_LONGEST = timedelta(days=365)
"""Upper bound of an estimate. A line that last moved long ago would otherwise give spans that `timedelta` cannot
hold."""
_SHARES = (1.0, 0.5, 0.25)
"""The speed is measured over all known steps, over their later half, and over the last quarter."""


class LineMove(msgspec.Struct, frozen=True):
    """A step by which the line got shorter: numbers of visitors that were admitted, and that left or were removed."""

    at_ms: int
    admitted: int
    gone: int = 0


class Estimate(msgspec.Struct, frozen=True):
    """Interval in which the visitor will probably be admitted."""

    soonest: timedelta
    latest: timedelta


class Pace(msgspec.Struct, frozen=True):
    """Time per visitor ahead: lower and upper bound."""

    soonest_ms: float
    latest_ms: float

    def wait(self, ahead: int) -> Estimate:
        """Return how long a visitor with `ahead` visitors before them waits."""
        require_not_negative("ahead", ahead)
        needed = ahead + 1
        return Estimate(_span(needed * self.soonest_ms), _span(needed * self.latest_ms))


def _span(ms: float) -> timedelta:
    return timedelta(milliseconds=ms) if ms < _LONGEST.total_seconds() * 1000 else _LONGEST


def measure_pace(moves: Sequence[LineMove], now_ms: int) -> Pace | None:
    """Return the speed of the line; None if it is not known yet.

    The interval spans the speeds of several recent periods, and is wider the less was observed. Visitors that left were
    ahead in the best case, and behind in the worst. The time since the last step counts, so a line that stands still
    becomes slower.
    """
    steps = [move for move in moves if move.admitted]
    if len(steps) < _LEAST_BATCHES or now_ms <= steps[0].at_ms:
        return None
    intervals = [steps[-max(_LEAST_BATCHES, math.ceil(len(steps) * share)) :] for share in _SHARES]
    # Bounds over all periods, so that a change of the speed widens the interval before it moves it.
    fastest = max(_speed(interval, now_ms, 1) for interval in intervals)
    slowest = min(_speed(interval, now_ms, 0) for interval in intervals)
    # The relative deviation of a random count is the inverse of its root.
    uncertainty = min(0.9, 1 / math.sqrt(sum(step.admitted for step in steps[1:])))
    return Pace(1 / (fastest * (1 + uncertainty)), 1 / (slowest * (1 - uncertainty)))


def _speed(steps: Sequence[LineMove], now_ms: int, share_ahead: int) -> float:
    """Return how many visitors per ms moved up, counting this share of the visitors that left.

    The first step only marks the beginning.
    """
    moved = sum(step.admitted + share_ahead * step.gone for step in steps[1:])
    return moved / max(1, now_ms - steps[0].at_ms)


_LARGEST_BATCH = 10_000
MOST_READS, MOST_JOINS = 500, 100
"""Visitors per call of a script, which takes a few milliseconds; the server does nothing else meanwhile."""
SHOWN = "?"
"""Claim of a visitor that shows a pass for a place."""
_STEPS_SEEN = 512

JoinReply = Standing | LineClosed | UnverifiedClaim


def unused_place(place: int | None, sql_epoch: int) -> str:
    """Return the claim of a visitor after SQL was asked. Without a place, it was used, and a new one is given.

    If SQL was read before the server's `sql_epoch`, the reply is `UnverifiedClaim` again.
    """
    return "" if place is None else f"{place}|{sql_epoch}"


class WaitingLine:
    """The line of one room. Every method raises `UnknownRoom` if the server does not have the room."""

    def __init__(self, valkey: Valkey, room: str, clock: Clock | None = None) -> None:
        self.room, self.keys = room, room_keys(valkey, room)
        self._valkey, self._clock = valkey, clock or SystemClock()
        self.epoch = 0
        """Epoch in the last reply of the server; a caller that knows an older epoch has an outdated room."""

    async def join(self, user: str, claim: str = "") -> JoinReply:
        """Add a visitor to the end of the line, or return where the visitor already stands; see `join_all`."""
        return (await self.join_all([(user, claim)]))[0]

    async def join_all(self, attempts: Sequence[tuple[str, str]]) -> list[JoinReply]:
        """Add visitors to the end of the line in this order, or return where they already stand.

        Each has a claim. It is `SHOWN` for a visitor that shows a pass for a place: if that place is not in line any
        more, the reply is `UnverifiedClaim`, and SQL has to be asked. `unused_place` is the claim after SQL found that
        the place was not used. Long lists are split into several calls.
        """
        replies = list[JoinReply]()
        for start in range(0, len(attempts), MOST_JOINS):
            replies += await self._join_all(attempts[start : start + MOST_JOINS])
        return replies

    async def _join_all(self, attempts: Sequence[tuple[str, str]]) -> list[JoinReply]:
        reply = await scripts.join(
            self._valkey,
            attempts=[(require_user(user), claim) for user, claim in attempts],
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"joined", opens_in_ms, epoch, found]:
                self.epoch = epoch
                return [_joined(each, opens_in_ms) for each in found]
            case _:
                raise UnknownRoom(self.room)

    async def standing(self, user: str) -> Standing:
        """Return where a visitor stands, and record a sign of life."""
        return (await self.standings([user])).standings[0]

    async def standings(self, users: Sequence[str]) -> LineView:
        """Return where several visitors stand, and record a sign of life of each. Long lists are split into several
        calls."""
        require_at_most("len(users)", len(users), _LARGEST_BATCH)
        view = await self._read_standings(users[:MOST_READS])
        for start in range(MOST_READS, len(users), MOST_READS):
            more = await self._read_standings(users[start : start + MOST_READS])
            view = LineView(more.waiting, more.opens_in_ms, view.standings + more.standings)
        return view

    async def _read_standings(self, users: Sequence[str]) -> LineView:
        reply = await scripts.read_standings(
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

    async def sweep(self, most: int = MOST_READS) -> tuple[int, int | None]:
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

    async def counts(self) -> RoomCounts:
        """Count the visitors in each state."""
        reply = await scripts.status(
            self._valkey,
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"room", waiting, entering, active, guests, opens_in_ms]:
                return RoomCounts(
                    waiting=waiting,
                    entering=entering,
                    active=active,
                    guests=guests,
                    opens_in_ms=opens_in_ms,
                )
            case _:
                raise UnknownRoom(self.room)


def _joined(reply: list[Any], opens_in_ms: int) -> JoinReply:
    match reply:
        case [b"waiting", place, rank, is_new]:
            ahead = None if rank < 0 else rank
            return InLine(place=place, ahead=ahead, opens_in_ms=opens_in_ms, is_new=bool(is_new))
        case [b"claim", sql_epoch]:
            return UnverifiedClaim(sql_epoch)
        case [b"closed"]:
            return LineClosed()
        case _:
            return _standing(reply)


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
