"""One waiting room: visitors join, wait, are admitted, and leave.

A server that refuses connections reports that at once; one that hangs does not reply at all. `ReplyDeadline` bounds how
long callers wait for a server that hangs.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal, TypeVar

import msgspec

from tidegate.core.batching import BatchedCall
from tidegate.core.clock import monotonic_ms, to_ms
from tidegate.core.errors import (
    CircuitOpen,
    DatabaseUnavailable,
    NotFound,
    Unavailable,
    ValkeyUnavailable,
)
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerSettings
from tidegate.runtime.waiting import time_limit
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import room_store, session_store
from tidegate.systems.waiting_room.admission import Admitter
from tidegate.systems.waiting_room.installation import RoomInstaller
from tidegate.systems.waiting_room.line import (
    MOST_JOINS,
    MOST_READS,
    SHOWN,
    Estimate,
    JoinReply,
    Pace,
    WaitingLine,
    measure_pace,
    unused_place,
)
from tidegate.systems.waiting_room.model import (
    AdmissionResults,
    Entering,
    EpochReplaced,
    InLine,
    Inside,
    LineClosed,
    LineView,
    NotActive,
    NotPresent,
    Room,
    RoomClosed,
    RoomCounts,
    Session,
    Standing,
    UnknownRoom,
    UnverifiedClaim,
    VisitorAdmission,
    VisitorStatus,
    drawn_place,
    number_of,
    require_user,
)
from tidegate.systems.waiting_room.passes import PassRefused, PassSigner, VisitorPass

Result = TypeVar("Result")
CHECK_DEADLINE_S = 1.0
"""Longest wait of the quick check, which can ask SQL instead."""
DEADLINE_S = 3.0
"""Longest wait where only the server knows the answer."""
_REMEMBERED = CircuitBreakerSettings(window=1, failure_rate=1.0, open_for=timedelta(seconds=3), trials=1)
"""After one unanswered call, one caller in 3 s tests the server; the others are refused at once."""


class ReplyDeadline:
    """Bounds how long calls about one room wait for the server. In a cluster, the server of one room may hang while
    others reply."""

    def __init__(self, room: str, *, elapsed_ms: Callable[[], float] = monotonic_ms) -> None:
        self._room, self._heard_at = room, 0.0
        # Only missing replies count. An error that is reported at once, such as a refused connection, delays no caller.
        self._hanging = CircuitBreaker("waiting_room", _REMEMBERED, failures=(TimeoutError,), elapsed_ms=elapsed_ms)

    async def call(self, step: Callable[[], Awaitable[Result]], within_s: float = DEADLINE_S) -> Result:
        """Run a step. Raises `ValkeyUnavailable` if the server has answered no caller for `within_s` seconds.

        While the server answers other callers, this one waits for its turn. A step that was given up may still take
        effect.
        """
        try:
            # `heard_at`: a busy server answers other callers meanwhile, and then this one waits on.
            with self._hanging.attempt():
                async with time_limit(within_s, heard_at=lambda: self._heard_at):
                    reply = await step()
        except TimeoutError as error:
            raise ValkeyUnavailable(f"room {self._room!r}: the server did not reply within {within_s:g} s") from error
        except CircuitOpen as error:
            raise ValkeyUnavailable(f"room {self._room!r}: the server did not reply recently") from error
        self._heard_at = asyncio.get_running_loop().time()
        return reply


Result = TypeVar("Result")
_TRIES = 4
_VISITOR_LASTS = timedelta(days=1)
_PAUSE_S = 1.0
"""Longest wait for the database when the room was changed; other callers continue with the known rules."""


class WaitingRoom:
    """One waiting room. Visitors show the pass that they were given last.

    Methods that need the Valkey server raise `ValkeyUnavailable` within seconds while it is unavailable or hangs.

    Example:
        rooms = open_waiting_rooms(settings, database, valkey)
        await rooms.create("sale", RoomPlan(capacity=500, session=timedelta(minutes=10)))
        room = await rooms.open("sale")
        status = await room.join("ada")
        status = await room.status(status.token)
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
        # Concurrent visitors share a call of the script, because a call costs much more than a visitor in it.
        self._joins = BatchedCall(self._join_all, most=MOST_JOINS)
        self._statuses = BatchedCall(self._read_statuses, most=MOST_READS)
        self._not_before = 0.0
        self.is_deleted = False
        """Whether the room was found to be deleted; this object must be replaced."""

    @property
    def name(self) -> str:
        """Name of the room."""
        return self.room.name

    async def join(self, user: str, token: str | None = None) -> VisitorStatus:
        """Add a visitor to the line, or return where the visitor already stands. Raises `RoomClosed`.

        `token` is the last pass of the visitor. If the server lost the visitor, the pass restores the previous place,
        unless the visitor was admitted from it.
        """
        user = require_user(user)
        # First without asking SQL: in nearly all cases the visitor is in line, or has no pass.
        claim = self._claim(user, token)
        standing = await self._joins.ask((user, "" if claim is None else SHOWN))
        while isinstance(standing, UnverifiedClaim):  # repeated only if the room was installed meanwhile
            standing = await self._come_back(user, claim, standing.sql_epoch)
        if isinstance(standing, LineClosed):
            raise RoomClosed(self.name)
        return self.answer(user, standing)

    async def _come_back(self, user: str, claim: int | None, sql_epoch: int) -> JoinReply:
        # The place of a visitor that was admitted must not be restored: the visitor would come in twice.
        is_used = claim is None or await self._database.read(session_store.is_place_used, self.name, claim)
        place = None if is_used else claim
        return await self._with_deadline(lambda: self.line.join(user, unused_place(place, sql_epoch)))

    async def status(self, token: str) -> VisitorStatus:
        """Return where the owner of a pass stands, with a new pass. The request counts as a sign of life."""
        shown = self.read(token)
        standing, waiting = await self._statuses.ask(shown.user)
        return self.answer(shown.user, standing, waiting)

    async def present(self) -> Room:
        """Return the current state of the room; the last known state while a server is unavailable."""
        with suppress(ValkeyUnavailable):
            await self.standings([])
        return self.room

    async def standings(self, users: Sequence[str]) -> LineView:
        """Return where several visitors stand, for a process that holds their connections."""
        return await self._with_deadline(lambda: self.line.standings(users))

    async def _read_statuses(self, users: Sequence[str]) -> list[tuple[Standing, int]]:
        seen = await self.standings(users)
        return [(standing, seen.waiting) for standing in seen.standings]

    async def _join_all(self, attempts: Sequence[tuple[str, str]]) -> list[JoinReply]:
        return await self._with_deadline(lambda: self.line.join_all(attempts))

    async def leave(self, token: str) -> None:
        """Leave the line or the room. Has no effect on a visitor that is in neither."""
        shown = self.read(token)
        standing = await self._with_deadline(lambda: self.line.leave(shown.user))
        if isinstance(standing, (Entering, Inside)):
            entry = VisitorAdmission(
                shown.user, standing.admission, standing.place if isinstance(standing, Entering) else None
            )
            # SQL first: if the process dies before the release, the leader finds the ended session and frees the place.
            await self._database.transaction(session_store.leave, self.name, entry)
            await self.deadline.call(lambda: self.admitter.release([entry], "left"))

    async def check(self, token: str) -> VisitorStatus:
        """Check a pass quickly; the result is not binding. Raises `NotActive` or `PassRefused`.

        SQL decides while Valkey is unavailable or hangs, and where the session is over according to Valkey: the session
        may have been renewed in SQL only, and there may be no leader at the moment to correct Valkey.
        """
        shown = self.read(token)
        if shown.kind != "inside":
            raise NotActive(self.name, shown.user)
        try:
            standing = await self._with_deadline(lambda: self.line.standing(shown.user), CHECK_DEADLINE_S)
        except ValkeyUnavailable:
            standing = await self._inside_by_sql(shown.user)
        # The session may have been renewed in SQL without the server knowing it.
        if isinstance(standing, Inside) and standing.left_ms <= 0:
            with suppress(DatabaseUnavailable):
                standing = await self._inside_by_sql(shown.user)
        # The number is compared as well: a pass of an earlier session must not open a later one.
        if not isinstance(standing, Inside) or standing.admission != shown.admission or standing.left_ms <= 0:
            raise NotActive(self.name, shown.user)
        return VisitorStatus(shown.user, standing, token)

    async def _inside_by_sql(self, user: str) -> Inside:
        session = await self._database.read(session_store.find_active, self.name, user)
        return Inside(session.admission, session.left_ms(self._now()))

    def require_active(self, tx: Transaction, user: str) -> Session:
        """Return the active session of a user, and lock it until the commit. Raises `NotActive`.

        This is the binding check: call it in the transaction that reserves or pays.
        """
        return session_store.require_active(tx, self.name, user)

    async def renew(self, token: str) -> VisitorStatus:
        """Extend the session after activity, if less than half of it is left, up to its maximum. Raises `NotActive`."""
        shown = self.read(token)
        if shown.kind != "inside":
            raise NotActive(self.name, shown.user)
        session = await self._database.transaction(session_store.renew, self.name, shown.user)
        now = self._now()
        with suppress(ValkeyUnavailable):  # the server checks SQL when the old end is reached
            await self.deadline.call(lambda: self.admitter.activate(AdmissionResults([session])), CHECK_DEADLINE_S)
        return self.answer(shown.user, Inside(session.admission, session.left_ms(now)))

    async def invite(self, users: Sequence[str]) -> int:
        """Admit named users at once, beside the capacity; return how many were not inside before."""
        await self.standings([])  # fails if the server does not reply; the next step has no deadline
        return await self._installed(lambda: self.admitter.invite(users))

    async def counts(self) -> RoomCounts:
        """Count the visitors in each state."""
        return await self._with_deadline(self.line.counts)

    async def estimate(self, ahead: int) -> Estimate | None:
        """Estimate the wait of a visitor with `ahead` visitors before them; None if the speed is not known yet."""
        pace = await self.pace()
        return None if pace is None else pace.wait(ahead)

    async def pace(self) -> Pace | None:
        """Return the speed of the line; None if it is not known yet."""
        return measure_pace(*await self.deadline.call(self.line.moves))

    async def _with_deadline(self, step: Callable[[], Awaitable[Result]], within_s: float = DEADLINE_S) -> Result:
        """Run a step with a deadline. If the server does not have the room, or an older version, install the room
        first."""
        done = await self._installed(lambda: self.deadline.call(step, within_s))
        # Every reply has the epoch, so a change made by another process is noticed without a subscription.
        if self.line.epoch > self.room.epoch:
            await self._catch_up()
        return done

    async def _installed(self, step: Callable[[], Awaitable[Result]]) -> Result:
        for _ in range(_TRIES):
            # Read before the step: an installation that happens during it must not be repeated.
            installs = self.installer.installs
            try:
                return await step()
            except (UnknownRoom, EpochReplaced):
                try:
                    self.room = await self.installer.install_unless_done(installs)
                except NotFound:
                    self.is_deleted = True
                    raise
        raise ValkeyUnavailable(f"room {self.name!r} is lost as soon as it is installed")

    async def _catch_up(self) -> None:
        """Read the room again after another caller or process changed it.

        One caller at a time, and for a second at most: visitors can wait by the known rules while the database is
        unavailable.
        """
        if time.monotonic() < self._not_before:
            return
        # Set before the read: concurrent callers skip it, and after a failure the next attempt waits.
        self._not_before = time.monotonic() + _PAUSE_S
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                self.room = await self._database.read(room_store.get, self.name)
            self._not_before = 0.0

    def _claim(self, user: str, token: str | None) -> int | None:
        """Return the place of a valid pass of this user, else None."""
        try:
            shown = None if token is None else self.read(token)
        except PassRefused:
            return None
        return shown.place if shown is not None and shown.user == user else None

    def new_visitor(self) -> str:
        """Return a signed text with a new user id for an anonymous visitor, so that one browser joins once."""
        return self._pass("visitor", f"visitor-{secrets.token_hex(16)}", _VISITOR_LASTS)

    def read_visitor(self, token: str) -> str:
        """Return the user id of an anonymous visitor's text. Raises `PassRefused`."""
        shown = self._read(token)
        if shown.kind != "visitor":
            raise PassRefused("the value is not a visitor id")
        return shown.user

    def read(self, token: str) -> VisitorPass:
        """Return the contents of a pass for this room. Raises `PassRefused`."""
        shown = self._read(token)
        if shown.kind == "visitor":
            raise PassRefused("the value is not a pass")
        return msgspec.structs.replace(shown, place=self._place_of(shown.place))

    def _read(self, token: str) -> VisitorPass:
        shown = self._signer.read(token, room=self.name, now=self._now())
        # A room that was deleted and created again has the same name and another line.
        if shown.line != self.room.line:
            raise PassRefused("the pass is for another line")
        return shown

    def answer(self, user: str, standing: Standing, waiting: int | None = None) -> VisitorStatus:
        """Return the status of a visitor, with a new pass."""
        return VisitorStatus(user, standing, self._pass_for(user, standing), waiting)

    def _pass_for(self, user: str, standing: Standing) -> str | None:
        match standing:
            case InLine(place=place):
                # Valid as long as a place is kept without a sign of life: a visitor that was removed has no valid pass.
                return self._pass("waiting", user, self.room.plan.abandon_after, place=place)
            case Inside(admission):
                return self._pass("inside", user, self.room.plan.longest_session, admission=admission)
            case Entering(place=place):
                return self._pass("waiting", user, self.room.plan.abandon_after, place=place)
            case NotPresent():
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
        # Visitors can read their passes. A visitor that knew its drawn place before the start could leave and join
        # again for a better one.
        shown_place = place if place is None or place >= 0 else -number_of(place)
        return self._signer.issue(VisitorPass(kind, self.name, self.room.line, user, until_ms, shown_place, admission))

    def _place_of(self, shown_place: int | None) -> int | None:
        return shown_place if shown_place is None or shown_place >= 0 else drawn_place(self.room.seed, -shown_place)

    def now_ms(self) -> int:
        """Return the time of this process, by which the validity of passes is decided."""
        return to_ms(self._now())

    def _now(self) -> datetime:
        return self._database.clock.now()
