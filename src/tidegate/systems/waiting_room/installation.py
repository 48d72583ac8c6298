"""Installs a room on the Valkey server: its settings, sessions and reserved arrival numbers.

Correct at any moment and safe to repeat; every change of a room is installed. An installation begins a new epoch, which
is required for admissions: an admission in progress is completed if its rows are written, else its visitors get their
previous places back.
"""

import asyncio
import math
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds, to_ms
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import room_store, scripts, session_store
from tidegate.systems.waiting_room.admission import Admitter, LeaderReplaced
from tidegate.systems.waiting_room.model import Room, Session

log = get_logger(__name__)
_AT_ONCE = 1000
_TRIES = 9
_CROSSED = Backoff(first=timedelta(milliseconds=50), most=timedelta(seconds=2))
"""Two installers that run at once take the pause from each other; jittered retries let one of them finish."""
_WITHIN = timedelta(seconds=5)
"""Another process may install the room after this time, since the process that began may be dead."""


class RoomInstaller:
    """Installs one room on the server."""

    def __init__(self, valkey: Valkey, database: Database, admitter: Admitter) -> None:
        self.room, self.keys = admitter.room, admitter.keys
        self._valkey, self._database, self._admitter = valkey, database, admitter
        self._alone = asyncio.Lock()
        self._latest: Room | None = None
        self.installs = 0
        """Number of installations by this process."""

    async def install_unless_done(self, installs: int) -> Room:
        """Install the room unless this process did so since `installs` was read: of many callers that find the room
        lost, one installs it."""
        async with self._alone:
            # Another caller installed the room while this one waited for the lock.
            if self._latest is not None and self.installs != installs:
                return self._latest
            return await self._install()

    async def install(self) -> Room:
        """Install the room as it is in SQL, and reserve arrival numbers where they are needed."""
        async with self._alone:
            return await self._install()

    async def _install(self) -> Room:
        for tries in range(1, _TRIES + 1):
            token = new_id()
            # 1. Pause admissions. 2. Begin an epoch and read the room in one transaction. 3. Send it; the script
            # refuses if the pause is over or was taken by another installer.
            paused = await self._pause(token)
            records = await self._database.transaction(_begin, self.room, paused)
            outcome = await self._send(records, paused)
            # `newer`: another process has installed a later epoch, so the server has at least this state.
            if outcome in (b"installed", b"newer"):
                log.info("room.installed", room=self.room, epoch=records.room.epoch, inside=len(records.sessions))
                self.installs, self._latest = self.installs + 1, records.room
                return records.room
            if tries < _TRIES:
                await asyncio.sleep(_CROSSED.delay(tries).total_seconds())
        raise ValkeyUnavailable(f"room {self.room!r} is lost, or paused by others, as soon as it is installed")

    async def _pause(self, token: str) -> "_Paused":
        """Pause admissions, since what is read from SQL would be outdated if visitors were admitted meanwhile.

        Admissions in progress are completed or reverted before any other visitor is admitted, so that they are not
        overtaken. After a restart of the server, sessions that ended are removed first; the capacity would count them
        otherwise.
        """
        known = await scripts.pause(
            self._valkey,
            token=token,
            fence=self._admitter.fence,
            lasts_ms=milliseconds(_WITHIN),
            now_ms=self._database.clock.pinned_ms,
            **self.keys,
        )
        match known:
            case [b"replaced", _]:
                raise LeaderReplaced(self.room, self._admitter.fence)
            case [run, admission, is_same_run, is_low, in_progress]:
                # A server on another run may lack its last writes, so what it counts as inside or
                # entering is checked against SQL.
                if in_progress or not is_same_run:
                    await self._settle(is_same_run=bool(is_same_run))
                numbers = room_store.NUMBERS_AT_ONCE if is_low else 0
                return _Paused(token, run.decode(), admission, numbers if is_same_run else room_store.NUMBERS_AT_FIRST)
            case _:
                # The server does not know the room: there is nothing to settle.
                return _Paused(token, known[0].decode(), None, room_store.NUMBERS_AT_FIRST)

    async def _settle(self, *, is_same_run: bool) -> None:
        """Begin a new epoch, which voids admissions of other processes, and settle these admissions."""
        await self._database.transaction(room_store.begin_epoch, self.room)
        # First out, then in: the server never counts more visitors than the capacity.
        if not is_same_run:
            await self._admitter.release_ended()
        await self._admitter.settle_all()

    async def _send(self, records: "_RoomRecords", paused: "_Paused") -> bytes:
        """Send the state of the room in parts; it takes effect with the last part."""
        now = self._database.clock.now()
        room = records.room
        # A span and not a time: the server's clock may differ from that of this process.
        opens_in_ms = -1 if room.opens_at is None else max(0, to_ms(room.opens_at) - to_ms(now))
        inside = [(each.user, each.admission, each.left_ms(now), int(each.is_guest)) for each in records.sessions]
        outcome, sent, most = b"", 0, max(len(inside), len(records.over))
        # At least one part is sent, also for an empty room, since the last part makes the installation effective.
        while not outcome or sent < most:
            part = slice(sent, sent + _AT_ONCE)
            sent += _AT_ONCE
            outcome = await scripts.install(
                self._valkey,
                rules=_rules(room),
                opens_in_ms=opens_in_ms,
                numbers=records.numbers,
                admission=records.admission,
                sessions=inside[part],
                over=records.over[part],
                token=paused.token,
                paused_run=paused.run,
                is_last=int(sent >= most),
                now_ms=self._database.clock.pinned_ms,
                **self.keys,
            )
            if outcome != b"installed":
                break
        return outcome


class _Paused(NamedTuple):
    """State of the server when admissions were paused."""

    token: str
    """Identifies the installer that paused the room."""
    run: str
    """Identifies the run of the server; after a restart the installation begins again."""
    admission: int | None
    """The last admission that the server knows; None if it does not know the room."""
    numbers: int
    """Number of arrival numbers to reserve."""


class _RoomRecords(msgspec.Struct, frozen=True):
    """State of a room in SQL."""

    room: Room
    numbers: tuple[int, int]
    """The last reserved arrival number before this installation, and now."""
    sessions: list[Session]
    admission: int
    """The last admission in SQL."""
    over: list[tuple[str, int]] = []
    """User and place of visitors that were admitted and left without the server's knowledge."""


def _begin(tx: Transaction, name: str, paused: _Paused) -> _RoomRecords:
    # Takes an exclusive lock on the row. Transactions that write admissions hold it shared, so they have ended by now.
    room, before = room_store.begin_epoch(tx, name, paused.numbers)
    over = [] if paused.admission is None else session_store.ended_since(tx, name, paused.admission)
    return _RoomRecords(
        room,
        (before, room.reserved),
        session_store.active_sessions(tx, name),
        session_store.highest_admission(tx, name),
        [(each.user, each.place) for each in over if each.place is not None],
    )


def _rules(room: Room) -> dict[str, Any]:
    rate = room.plan.admit_per_second
    return {
        "epoch": room.epoch,
        "state": room.state.value,
        "capacity": room.plan.capacity,
        "interval_ms": 0 if rate is None else 1000 / rate,
        "burst": 1 if rate is None else max(1, math.ceil(rate)),
        "abandon_ms": milliseconds(room.plan.abandon_after),
        "log_most": room.plan.log_length,
        "seed": room.seed,
        "line": room.line,
    }
