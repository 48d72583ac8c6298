"""Admits visitors from the line into the room, and ends their sessions.

An admission has three steps: a script takes visitors out of the front of the line, one transaction writes their rows,
and a script records that they are inside. When a step fails, SQL decides: a visitor with an ACTIVE row is inside, every
other one gets the previous place back. One batch is in progress at a time, and only the current leader may begin one.
See docs/decisions/0015 and 0024.
"""

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from tidegate.core.arguments import require_at_most
from tidegate.core.clock import milliseconds
from tidegate.core.errors import CommitUnknown, TidegateError
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import scripts, session_store
from tidegate.systems.waiting_room.metrics import ROOM_ADMITTED, ROOM_ENDED
from tidegate.systems.waiting_room.model import (
    AdmissionResults,
    AdmissionState,
    UnknownRoom,
    VisitorAdmission,
    require_user,
)
from tidegate.systems.waiting_room.scripts import room_keys
from tidegate.systems.waiting_room.settings import WaitingRoomSettings

log = get_logger(__name__)
_DUE_AT_ONCE = 500
_BUYING = timedelta(seconds=1)
"""Delay after which a session is checked again that ended while its row was locked by a purchase."""


class AdmissionBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Visitors that were taken out of the line together."""

    epoch: int
    entries: list[VisitorAdmission]
    gone: int = 0
    waiting: int = 0
    next_in_ms: int | None = None
    """Time until more visitors can be taken; None: after the next wake-up."""
    needs_numbers: bool = False
    are_guests: bool = False


class DueAdmissions(msgspec.Struct, frozen=True):
    """Admissions and sessions that are over."""

    overdue: list[VisitorAdmission]
    ended: list[VisitorAdmission]
    next_in_ms: int | None


class LeaderReplaced(TidegateError):
    """A later leader has taken the room over; this process must not admit visitors."""

    def __init__(self, room: str, fence: int) -> None:
        super().__init__(f"room {room!r} is kept by a later leader than the one with fencing number {fence}")
        self.room, self.fence = room, fence


class Admitter:
    """Admits visitors to one room and ends their sessions.

    `fence` is the fencing number of the leader for which this object admits; 0 for a process that does not lead.

    Raises `LeaderReplaced` from `take` and `admit` when a later leader has taken the room over. All methods raise
    `UnknownRoom` when the server does not have the room or an admission is in progress, and `EpochReplaced` when the
    room was installed again since; in both cases the room has to be installed before the call is repeated.
    """

    def __init__(
        self,
        valkey: Valkey,
        database: Database,
        room: str,
        settings: WaitingRoomSettings | None = None,
        *,
        fence: int = 0,
    ) -> None:
        self.room, self.keys, self.fence = room, room_keys(valkey, room), fence
        self._valkey, self._database = valkey, database
        self._settings = settings or WaitingRoomSettings()
        self._clock = database.clock

    async def admit(self) -> AdmissionBatch:
        """Admit as many visitors as capacity and rate allow, up to the batch size."""
        taken = await self.take()
        ROOM_ENDED.labels(self.room, "dropped").inc(taken.gone)
        await self._admit_batch(taken)
        return taken

    async def invite(self, users: Sequence[str]) -> int:
        """Admit named users beside the capacity, whether they wait or not; return how many were not inside before."""
        require_at_most("len(users)", len(users), self._settings.admitted_at_once)
        reply = await scripts.invite(
            self._valkey,
            users=[require_user(user) for user in users],
            settle_ms=milliseconds(self._settings.settle_after),
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"taken", epoch, taken]:
                return await self._admit_batch(AdmissionBatch(epoch=epoch, entries=_entries(taken), are_guests=True))
            case _:
                raise UnknownRoom(self.room)

    async def take(self) -> AdmissionBatch:
        """First step: take visitors out of the front of the line."""
        reply = await scripts.admit(
            self._valkey,
            fence=self.fence,
            most=self._settings.admitted_at_once,
            settle_ms=milliseconds(self._settings.settle_after),
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"taken", epoch, taken, wait_ms, gone, waiting, needs_numbers]:
                return AdmissionBatch(
                    epoch=epoch,
                    entries=_entries(taken),
                    gone=gone,
                    waiting=waiting,
                    next_in_ms=None if wait_ms < 0 else wait_ms,
                    needs_numbers=bool(needs_numbers),
                )
            case [b"replaced"]:
                # Only the script can decide this: between a check of the lease here and the
                # call, the process may freeze.
                raise LeaderReplaced(self.room, self.fence)
            case _:
                raise UnknownRoom(self.room)

    async def write(self, taken: AdmissionBatch) -> AdmissionResults:
        """Second step: write their rows. If that fails, they get their previous places back."""
        entries = taken.entries
        try:
            return await self._database.transaction(
                session_store.admit, self.room, taken.epoch, entries, taken.are_guests
            )
        except CommitUnknown:
            raise  # outcome unknown: the next installation, or the deadline of an invitation, settles it
        except Exception:
            # Nothing was written. The worker is not woken, since it retries with growing pauses; after an invitation it
            # is, since it may wait for the end of it.
            await self._restore(entries, wake_worker=taken.are_guests)
            raise

    async def confirm(self, found: AdmissionResults) -> None:
        """Third step: visitors with an active row are inside, others are back in line; places of visitors that left
        meanwhile are freed."""
        # Sessions first: a failure after this line leaves only visitors to restore or places to free, which the next
        # leader repairs.
        await self.activate(found)
        await self._restore(found.not_admitted, wake_worker=True)
        await self.release(found.ended, "left")

    async def due(self) -> DueAdmissions:
        """Return overdue admissions, and sessions that can be over."""
        reply = await scripts.due(
            self._valkey,
            most=_DUE_AT_ONCE,
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        match reply:
            case [b"due", overdue, ended, wait_ms]:
                return DueAdmissions(_entries(overdue), _entries(ended), None if wait_ms < 0 else wait_ms)
            case _:
                raise UnknownRoom(self.room)

    async def settle(self, entries: Sequence[VisitorAdmission]) -> None:
        """Complete admissions that have rows, and revert the others."""
        # Writing ROLLED_BACK decides the admission: a frozen process that inserts the row later
        # finds it, and inserts nothing.
        found = await self._database.transaction(session_store.settle, self.room, entries, AdmissionState.ROLLED_BACK)
        await self.confirm(found)
        log.warning(
            "room.admissions_settled", room=self.room, admitted=len(found.active), rolled_back=len(found.not_admitted)
        )

    async def expire(self, entries: Sequence[VisitorAdmission]) -> None:
        """End the sessions that are over according to SQL, and record the new end of sessions that were renewed.

        A session that a purchase has locked is checked again after a second.
        """
        found = await self._database.transaction(session_store.expire, self.room, entries)
        # `active` here means renewed, or locked by a purchase. A locked session may have no
        # time left, hence `at_least`.
        await self.activate(found, at_least=_BUYING)
        await self.release([*found.ended, *found.not_admitted], "expired")

    async def release_ended(self) -> None:
        """Free the places of visitors that are inside according to the server, but not according to SQL."""
        async for entries in self._known("admissions"):
            # `not_admitted` has no row, or one that was rolled back: the server counts a
            # visitor that SQL never admitted.
            found = await self._database.read(session_store.results_of, self.room, entries)
            await self.release([*found.ended, *found.not_admitted], "expired")

    async def settle_all(self) -> None:
        """Complete or revert every admission in progress.

        The caller has paused the room and begun a new epoch, so no other process writes rows of these admissions any
        more.
        """
        async for entries in self._known("entries"):
            await self.settle(entries)

    async def _known(self, part: Literal["admissions", "entries"]) -> AsyncGenerator[list[VisitorAdmission]]:
        """Iterate over one of the server's hashes, page by page."""
        cursor = b"0"
        while True:
            cursor, page = await self._valkey.execute("HSCAN", self.keys[part], cursor, "COUNT", _DUE_AT_ONCE)
            if page:
                yield [VisitorAdmission(user.decode(), *_numbers(value)) for user, value in page.items()]
            if int(cursor) == 0:
                return

    async def release(self, entries: Sequence[VisitorAdmission], what: str) -> None:
        """Free the places of sessions that SQL has ended."""
        if not entries:
            return
        freed = await scripts.release(
            self._valkey,
            sessions=[(each.user, each.admission) for each in entries],
            what=what,
            **self.keys,
        )
        ROOM_ENDED.labels(self.room, what).inc(freed)

    async def activate(self, found: AdmissionResults, *, at_least: timedelta = timedelta()) -> int:
        """Record sessions and their end on the server; return how many visitors came in by this call."""
        if not found.active:
            return 0
        # Relative to the present, not to the time of the query: a process that was frozen in between would extend the
        # sessions.
        least_ms, now = milliseconds(at_least), self._clock.now()
        return await scripts.activate(
            self._valkey,
            sessions=[(each.user, each.admission, each.left_ms(now) or least_ms) for each in found.active],
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )

    async def _admit_batch(self, taken: AdmissionBatch) -> int:
        if not taken.entries:
            return 0
        found = await self.write(taken)
        await self.confirm(found)
        ROOM_ADMITTED.labels(self.room).inc(len(found.active))
        return len(found.active)

    async def _restore(self, entries: Sequence[VisitorAdmission], *, wake_worker: bool) -> None:
        if not entries:
            return
        restored = await scripts.restore(
            self._valkey,
            entered=[(each.user, each.admission) for each in entries],
            wake_worker=int(wake_worker),
            now_ms=self._clock.pinned_ms,
            **self.keys,
        )
        ROOM_ENDED.labels(self.room, "rolled_back").inc(restored)
        if restored:
            log.warning("room.admissions_reverted", room=self.room, users=restored)


def _numbers(record: bytes) -> list[int]:
    """Parse the numbers of `admission` or `admission|place|last sign of life`."""
    return [int(number) for number in record.split(b"|")[:2] if number]


def _entries(found: list[Any]) -> list[VisitorAdmission]:
    # Not every reply has places, and an invited visitor that did not wait has none.
    return [VisitorAdmission(each[0].decode(), each[1], each[2] if len(each) > 2 else None) for each in found]
