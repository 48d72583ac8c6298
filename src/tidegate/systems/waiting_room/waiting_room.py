"""A waiting room, as the one who stands at the door sees it: people come, wait, are let in, and go."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal, TypeVar

import msgspec

from tidegate.core.clock import to_ms
from tidegate.core.errors import DatabaseUnavailable, NotFound, TidegateError, Unavailable, ValkeyUnavailable
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import rooms, tokens
from tidegate.systems.waiting_room.admission import Doors
from tidegate.systems.waiting_room.asking import AT_THE_DOOR_S, ELSEWHERE_S, Asking
from tidegate.systems.waiting_room.draw import drawn_place, number_of
from tidegate.systems.waiting_room.estimate import Estimate, Pace, measure_pace
from tidegate.systems.waiting_room.line import (
    Census,
    Claimed,
    Closed,
    Crowd,
    Entering,
    Inside,
    Line,
    Nowhere,
    Standing,
    UnknownRoom,
    Waiting,
    require_user,
)
from tidegate.systems.waiting_room.passes import Pass, PassOffice, PassRefused
from tidegate.systems.waiting_room.recovery import Recovery
from tidegate.systems.waiting_room.rooms import Room
from tidegate.systems.waiting_room.tokens import Entry, NotActive, Session, Sorted, VoidEpoch

Result = TypeVar("Result")
_TRIES = 4
_VISITOR_LASTS = timedelta(days=1)
_PAUSE_S = 1.0
"""So long one caller waits for the database, where the room was changed; the others go on meanwhile."""


class RoomClosed(TidegateError):
    """Nobody may join the line of `room` now."""

    problem = "room_closed"

    def __init__(self, room: str) -> None:
        super().__init__(f"room {room!r} is closed")
        self.room = room


class Answer(msgspec.Struct, frozen=True):
    """Where somebody stands, and the pass that he shows from now on; None for one who is nowhere."""

    user: str
    standing: Standing
    token: str | None
    waiting: int | None = None
    """The length of the line, where it was told too."""

    def __repr__(self) -> str:
        return f"Answer({self.user!r}, {self.standing!r})"


class WaitingRoom:
    """One waiting room. Visitors show the pass that they were given last.

    Where the server is away, or hangs, the methods that need it raise `ValkeyUnavailable` within seconds.
    """

    def __init__(
        self,
        room: Room,
        valkey: Valkey,
        database: Database,
        office: PassOffice,
        *,
        doors: Doors,
        recovery: Recovery,
    ) -> None:
        self.room, self.line, self.doors, self.recovery = room, Line(valkey, room.name, database.clock), doors, recovery
        self._valkey, self._database, self._office = valkey, database, office
        self.asking = Asking(room.name)
        self._not_before = 0.0
        self.is_deleted = False
        """Whether the room was found to be gone from SQL: what is known here is of no use any more."""

    @property
    def name(self) -> str:
        """The room's name."""
        return self.room.name

    async def join(self, user: str, token: str | None = None) -> Answer:
        """Come to the line, or be told where one stands already; raise `RoomClosed`.

        Who shows a pass for the line and is not in it any more, because the server lost it, has his old place again,
        unless he was let in from there.
        """
        user = require_user(user)
        claim = self._claim(user, token)
        standing = await self._surely(lambda: self.line.join(user, has_claim=claim is not None))
        while isinstance(standing, Claimed):  # again only where the room was installed meanwhile
            standing = await self._come_back(user, claim, standing.truth)
        if isinstance(standing, Closed):
            raise RoomClosed(self.name)
        return self.answer(user, standing)

    async def _come_back(self, user: str, claim: int | None, truth: int) -> Standing | Closed | Claimed:
        is_used = claim is None or await self._database.read(tokens.is_used, self.name, claim)
        place = None if is_used else claim
        return await self._surely(lambda: self.line.join(user, place, truth=truth))

    async def look(self, token: str) -> Answer:
        """Where the owner of a pass stands, with a new one; to ask is a sign of life."""
        shown = self.read(token)
        crowd = await self.look_at([shown.user])
        return self.answer(shown.user, crowd.standings[0], crowd.waiting)

    async def present(self) -> Room:
        """The room as it is now, whoever changed it; as it was, while the server or the database is away."""
        with suppress(ValkeyUnavailable):
            await self.look_at([])
        return self.room

    async def look_at(self, users: Sequence[str]) -> Crowd:
        """Where many stand: for a process that holds their connections."""
        return await self._surely(lambda: self.line.look_at(users))

    async def leave(self, token: str) -> None:
        """Give up the place in line, or inside; whoever is nowhere stays there."""
        shown = self.read(token)
        standing = await self._surely(lambda: self.line.leave(shown.user))
        if isinstance(standing, (Entering, Inside)):
            entry = Entry(shown.user, standing.admission, standing.place if isinstance(standing, Entering) else None)
            await self._database.transaction(tokens.leave, self.name, entry)
            await self.asking.ask(lambda: self.doors.release([entry], "left"))

    async def check(self, token: str) -> Answer:
        """The check at the door, quick and not binding; raise `NotActive` or `PassRefused`.

        SQL decides while Valkey is away or hangs, and where Valkey believes that the time is over: the session may have
        been prolonged in SQL alone, and a leader that would correct Valkey may not exist at the moment.
        """
        shown = self.read(token)
        if shown.kind != "inside":
            raise NotActive(self.name, shown.user)
        try:
            standing = await self._surely(lambda: self.line.look(shown.user), AT_THE_DOOR_S)
        except ValkeyUnavailable:
            standing = await self._inside_by_sql(shown.user)
        if isinstance(standing, Inside) and standing.left_ms <= 0:
            with suppress(DatabaseUnavailable):
                standing = await self._inside_by_sql(shown.user)
        if not isinstance(standing, Inside) or standing.admission != shown.admission or standing.left_ms <= 0:
            raise NotActive(self.name, shown.user)
        return Answer(shown.user, standing, token)

    async def _inside_by_sql(self, user: str) -> Inside:
        session = await self._database.read(tokens.find_active, self.name, user)
        return Inside(session.admission, session.left_ms(self._now()))

    def require_active(self, tx: Transaction, user: str) -> Session:
        """The binding check, in the transaction that reserves or pays; raise `NotActive`."""
        return tokens.require_active(tx, self.name, user)

    async def renew(self, token: str) -> Answer:
        """Something was done inside: prolong the session if less than half of it is left, up to its longest."""
        shown = self.read(token)
        if shown.kind != "inside":
            raise NotActive(self.name, shown.user)
        session = await self._database.transaction(tokens.renew, self.name, shown.user)
        now = self._now()
        with suppress(ValkeyUnavailable):  # the server is told when it believes that the session is over
            await self.asking.ask(lambda: self.doors.activate(Sorted([session])), AT_THE_DOOR_S)
        return self.answer(shown.user, Inside(session.admission, session.left_ms(now)))

    async def invite(self, users: Sequence[str]) -> int:
        """Let named users in at once, beside the capacity; how many of them were not inside."""
        await self.look_at([])  # whether the server answers: what follows is not given up, for it also writes to SQL
        return await self._installed(lambda: self.doors.invite(users))

    async def census(self) -> Census:
        """How many are where."""
        return await self._surely(self.line.census)

    async def estimate(self, ahead: int) -> Estimate | None:
        """How long one probably waits who has `ahead` before him; None while nobody knows."""
        pace = await self.pace()
        return None if pace is None else pace.wait(ahead)

    async def pace(self) -> Pace | None:
        """How fast the line moves; None while nobody knows."""
        return measure_pace(*await self.asking.ask(self.line.moves))

    async def _surely(self, step: Callable[[], Awaitable[Result]], within_s: float = ELSEWHERE_S) -> Result:
        """Do a step; where the server does not have the room, or an older one, install it first."""
        done = await self._installed(lambda: self.asking.ask(step, within_s))
        if self.line.epoch > self.room.epoch:
            await self._catch_up()
        return done

    async def _installed(self, step: Callable[[], Awaitable[Result]]) -> Result:
        for _ in range(_TRIES):
            installs = self.recovery.installs
            try:
                return await step()
            except (UnknownRoom, VoidEpoch):
                try:
                    self.room = await self.recovery.install_unless_done(installs)
                except NotFound:
                    self.is_deleted = True
                    raise
        raise ValkeyUnavailable(f"room {self.name!r} is lost as soon as it is installed")

    async def _catch_up(self) -> None:
        """Somebody changed the room, in this process or another: read it again.

        One at a time, and not for long: people can wait while the database is away, by the rules that we know.
        """
        if time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + _PAUSE_S
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                self.room = await self._database.read(rooms.get, self.name)
            self._not_before = 0.0

    def _claim(self, user: str, token: str | None) -> int | None:
        """The place that a pass shows; a pass that is none is as good as no pass."""
        try:
            shown = None if token is None else self.read(token)
        except PassRefused:
            return None
        return shown.place if shown is not None and shown.user == user else None

    def new_visitor(self) -> str:
        """A signed text with a new user id, for an anonymous visitor: the same browser joins once."""
        return self._pass("visitor", f"visitor-{secrets.token_hex(16)}", _VISITOR_LASTS)

    def read_visitor(self, token: str) -> str:
        """The user id of a visitor's text; raise `PassRefused`."""
        shown = self._read(token)
        if shown.kind != "visitor":
            raise PassRefused("that is no visitor")
        return shown.user

    def read(self, token: str) -> Pass:
        """What a pass for this room says; raise `PassRefused`."""
        shown = self._read(token)
        if shown.kind == "visitor":
            raise PassRefused("that is no pass")
        return msgspec.structs.replace(shown, place=self._place_of(shown.place))

    def _read(self, token: str) -> Pass:
        shown = self._office.read(token, room=self.name, now=self._now())
        if shown.line != self.room.line:
            raise PassRefused("the pass is for another line")
        return shown

    def answer(self, user: str, standing: Standing, waiting: int | None = None) -> Answer:
        """What somebody is told who stands there, with a new pass."""
        return Answer(user, standing, self._pass_for(user, standing), waiting)

    def _pass_for(self, user: str, standing: Standing) -> str | None:
        match standing:
            case Waiting(place=place):
                # As long as a place is kept without a sign of life: who was dropped has no pass for it.
                return self._pass("waiting", user, self.room.plan.abandon_after, place=place)
            case Inside(admission):
                return self._pass("inside", user, self.room.plan.longest_session, admission=admission)
            case Entering(place=place):
                return self._pass("waiting", user, self.room.plan.abandon_after, place=place)
            case Nowhere():
                return None

    def _pass(
        self,
        kind: Literal["waiting", "inside", "visitor"],
        user: str,
        lasts: timedelta,
        *,
        place: int | None = None,
        admission: int | None = None,
    ) -> str:
        until_ms = to_ms(self._now() + lasts)
        # Anybody can read his pass. Who knew his lot before the start would leave, and come again for a better one.
        told = place if place is None or place >= 0 else -number_of(place)
        return self._office.issue(Pass(kind, self.name, self.room.line, user, until_ms, told, admission))

    def _place_of(self, told: int | None) -> int | None:
        return told if told is None or told >= 0 else drawn_place(self.room.seed, -told)

    def now_ms(self) -> int:
        """By the clock of this process, which also decides whether a pass is good."""
        return to_ms(self._now())

    def _now(self) -> datetime:
        return self._database.clock.now()
