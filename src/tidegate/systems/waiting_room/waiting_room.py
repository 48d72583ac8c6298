"""Questions to the server of a line, which may hang: nobody waits long for it, and not everybody waits.

A server that refuses connections says so at once. One that hangs says nothing, and without a limit everybody who asks
would wait for as long as the client tries.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal, TypeVar

import msgspec

from tidegate.core.clock import monotonic_ms, to_ms
from tidegate.core.errors import (
    CircuitOpen,
    DatabaseUnavailable,
    NotFound,
    Unavailable,
    ValkeyUnavailable,
)
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerSettings
from tidegate.runtime.waiting import patience
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import room_store, session_store
from tidegate.systems.waiting_room.admission import Admitter
from tidegate.systems.waiting_room.draw import drawn_place, number_of
from tidegate.systems.waiting_room.estimate import Estimate, Pace, measure_pace
from tidegate.systems.waiting_room.installation import RoomInstaller
from tidegate.systems.waiting_room.line import WaitingLine
from tidegate.systems.waiting_room.model import (
    AdmissionResults,
    Entering,
    InLine,
    Inside,
    LineClosed,
    LineView,
    NotActive,
    Nowhere,
    Room,
    RoomCensus,
    RoomClosed,
    Session,
    Standing,
    UnknownRoom,
    UnverifiedClaim,
    VisitorAdmission,
    VisitorStatus,
    VoidEpoch,
    require_user,
)
from tidegate.systems.waiting_room.passes import PassRefused, PassSigner, VisitorPass

Result = TypeVar("Result")
CHECK_DEADLINE_S = 1.0
"""So long a silence is waited out where SQL knows as well: the check at the door is quick."""
DEADLINE_S = 3.0
"""And so long where nobody else knows: whoever is refused has to come again."""
_REMEMBERED = CircuitBreakerSettings(window=1, failure_rate=1.0, open_for=timedelta(seconds=3), trials=1)
"""One silence is enough. Then one caller in so many seconds finds out whether it is over; the others do not wait."""


class ReplyDeadline:
    """Asks the server about one room. In a cluster one room may hang, and the next one answer."""

    def __init__(self, room: str, *, elapsed_ms: Callable[[], float] = monotonic_ms) -> None:
        self._room, self._heard_at = room, 0.0
        # Only a silence counts. Whatever is told at once, also that the connection is refused, keeps nobody waiting.
        self._hanging = CircuitBreaker("waiting_room", _REMEMBERED, failures=(TimeoutError,), elapsed_ms=elapsed_ms)

    async def call(self, step: Callable[[], Awaitable[Result]], within_s: float = DEADLINE_S) -> Result:
        """Do a step; raise `ValkeyUnavailable` where the server has told nobody anything for `within_s` seconds.

        As long as others are answered a caller has to wait for his turn only, however many they are. A step that was
        given up may still be done when the server goes on.
        """
        try:
            with self._hanging.attempt():
                async with patience(within_s, heard_at=lambda: self._heard_at):
                    reply = await step()
        except TimeoutError as error:
            raise ValkeyUnavailable(f"room {self._room!r}: the server said nothing for {within_s:g} s") from error
        except CircuitOpen as error:
            raise ValkeyUnavailable(f"room {self._room!r}: the server hung a moment ago") from error
        self._heard_at = asyncio.get_running_loop().time()
        return reply


Result = TypeVar("Result")
_TRIES = 4
_VISITOR_LASTS = timedelta(days=1)
_PAUSE_S = 1.0
"""So long one caller waits for the database, where the room was changed; the others go on meanwhile."""


class WaitingRoom:
    """One waiting room. Visitors show the pass that they were given last.

    Where the server is away, or hangs, the methods that need it raise `ValkeyUnavailable` within seconds.
    """

    def __init__(
        self,
        room: Room,
        valkey: Valkey,
        database: Database,
        signer: PassSigner,
        *,
        admitter: Admitter,
        installer: RoomInstaller,
    ) -> None:
        self.room, self.line, self.admitter, self.installer = (
            room,
            WaitingLine(valkey, room.name, database.clock),
            admitter,
            installer,
        )
        self._valkey, self._database, self._signer = valkey, database, signer
        self.deadline = ReplyDeadline(room.name)
        self._not_before = 0.0
        self.is_deleted = False
        """Whether the room was found to be gone from SQL: what is known here is of no use any more."""

    @property
    def name(self) -> str:
        """The room's name."""
        return self.room.name

    async def join(self, user: str, token: str | None = None) -> VisitorStatus:
        """Come to the line, or be told where one stands already; raise `RoomClosed`.

        Who shows a pass for the line and is not in it any more, because the server lost it, has his old place again,
        unless he was let in from there.
        """
        user = require_user(user)
        claim = self._claim(user, token)
        standing = await self._with_deadline(lambda: self.line.join(user, has_claim=claim is not None))
        while isinstance(standing, UnverifiedClaim):  # again only where the room was installed meanwhile
            standing = await self._come_back(user, claim, standing.sql_epoch)
        if isinstance(standing, LineClosed):
            raise RoomClosed(self.name)
        return self.answer(user, standing)

    async def _come_back(self, user: str, claim: int | None, sql_epoch: int) -> Standing | LineClosed | UnverifiedClaim:
        is_used = claim is None or await self._database.read(session_store.is_place_used, self.name, claim)
        place = None if is_used else claim
        return await self._with_deadline(lambda: self.line.join(user, place, sql_epoch=sql_epoch))

    async def look(self, token: str) -> VisitorStatus:
        """Where the owner of a pass stands, with a new one; to ask is a sign of life."""
        shown = self.read(token)
        crowd = await self.look_at([shown.user])
        return self.answer(shown.user, crowd.standings[0], crowd.waiting)

    async def present(self) -> Room:
        """The room as it is now, whoever changed it; as it was, while the server or the database is away."""
        with suppress(ValkeyUnavailable):
            await self.look_at([])
        return self.room

    async def look_at(self, users: Sequence[str]) -> LineView:
        """Where many stand: for a process that holds their connections."""
        return await self._with_deadline(lambda: self.line.look_at(users))

    async def leave(self, token: str) -> None:
        """Give up the place in line, or inside; whoever is nowhere stays there."""
        shown = self.read(token)
        standing = await self._with_deadline(lambda: self.line.leave(shown.user))
        if isinstance(standing, (Entering, Inside)):
            entry = VisitorAdmission(
                shown.user, standing.admission, standing.place if isinstance(standing, Entering) else None
            )
            await self._database.transaction(session_store.leave, self.name, entry)
            await self.deadline.call(lambda: self.admitter.release([entry], "left"))

    async def check(self, token: str) -> VisitorStatus:
        """The check at the door, quick and not binding; raise `NotActive` or `PassRefused`.

        SQL decides while Valkey is away or hangs, and where Valkey believes that the time is over: the session may have
        been prolonged in SQL alone, and a leader that would correct Valkey may not exist at the moment.
        """
        shown = self.read(token)
        if shown.kind != "inside":
            raise NotActive(self.name, shown.user)
        try:
            standing = await self._with_deadline(lambda: self.line.look(shown.user), CHECK_DEADLINE_S)
        except ValkeyUnavailable:
            standing = await self._inside_by_sql(shown.user)
        if isinstance(standing, Inside) and standing.left_ms <= 0:
            with suppress(DatabaseUnavailable):
                standing = await self._inside_by_sql(shown.user)
        if not isinstance(standing, Inside) or standing.admission != shown.admission or standing.left_ms <= 0:
            raise NotActive(self.name, shown.user)
        return VisitorStatus(shown.user, standing, token)

    async def _inside_by_sql(self, user: str) -> Inside:
        session = await self._database.read(session_store.find_active, self.name, user)
        return Inside(session.admission, session.left_ms(self._now()))

    def require_active(self, tx: Transaction, user: str) -> Session:
        """The binding check, in the transaction that reserves or pays; raise `NotActive`."""
        return session_store.require_active(tx, self.name, user)

    async def renew(self, token: str) -> VisitorStatus:
        """Something was done inside: prolong the session if less than half of it is left, up to its longest."""
        shown = self.read(token)
        if shown.kind != "inside":
            raise NotActive(self.name, shown.user)
        session = await self._database.transaction(session_store.renew, self.name, shown.user)
        now = self._now()
        with suppress(ValkeyUnavailable):  # the server is told when it believes that the session is over
            await self.deadline.call(lambda: self.admitter.activate(AdmissionResults([session])), CHECK_DEADLINE_S)
        return self.answer(shown.user, Inside(session.admission, session.left_ms(now)))

    async def invite(self, users: Sequence[str]) -> int:
        """Let named users in at once, beside the capacity; how many of them were not inside."""
        await self.look_at([])  # whether the server answers: what follows is not given up, for it also writes to SQL
        return await self._installed(lambda: self.admitter.invite(users))

    async def census(self) -> RoomCensus:
        """How many are where."""
        return await self._with_deadline(self.line.census)

    async def estimate(self, ahead: int) -> Estimate | None:
        """How long one probably waits who has `ahead` before him; None while nobody knows."""
        pace = await self.pace()
        return None if pace is None else pace.wait(ahead)

    async def pace(self) -> Pace | None:
        """How fast the line moves; None while nobody knows."""
        return measure_pace(*await self.deadline.call(self.line.moves))

    async def _with_deadline(self, step: Callable[[], Awaitable[Result]], within_s: float = DEADLINE_S) -> Result:
        """Do a step; where the server does not have the room, or an older one, install it first."""
        done = await self._installed(lambda: self.deadline.call(step, within_s))
        if self.line.epoch > self.room.epoch:
            await self._catch_up()
        return done

    async def _installed(self, step: Callable[[], Awaitable[Result]]) -> Result:
        for _ in range(_TRIES):
            installs = self.installer.installs
            try:
                return await step()
            except (UnknownRoom, VoidEpoch):
                try:
                    self.room = await self.installer.install_unless_done(installs)
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
                self.room = await self._database.read(room_store.get, self.name)
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

    def read(self, token: str) -> VisitorPass:
        """What a pass for this room says; raise `PassRefused`."""
        shown = self._read(token)
        if shown.kind == "visitor":
            raise PassRefused("that is no pass")
        return msgspec.structs.replace(shown, place=self._place_of(shown.place))

    def _read(self, token: str) -> VisitorPass:
        shown = self._signer.read(token, room=self.name, now=self._now())
        if shown.line != self.room.line:
            raise PassRefused("the pass is for another line")
        return shown

    def answer(self, user: str, standing: Standing, waiting: int | None = None) -> VisitorStatus:
        """What somebody is told who stands there, with a new pass."""
        return VisitorStatus(user, standing, self._pass_for(user, standing), waiting)

    def _pass_for(self, user: str, standing: Standing) -> str | None:
        match standing:
            case InLine(place=place):
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
        return self._signer.issue(VisitorPass(kind, self.name, self.room.line, user, until_ms, told, admission))

    def _place_of(self, told: int | None) -> int | None:
        return told if told is None or told >= 0 else drawn_place(self.room.seed, -told)

    def now_ms(self) -> int:
        """By the clock of this process, which also decides whether a pass is good."""
        return to_ms(self._now())

    def _now(self) -> datetime:
        return self._database.clock.now()
