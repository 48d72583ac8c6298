"""Makes the server agree with SQL: the rules of a room, who is inside, and which arrival numbers may be given.

Always correct, at any moment; every change of a room goes this way. It begins a new epoch, under which alone people are
admitted: an admission that is under way is void, and those it was for have their old places again.
"""

import asyncio
import math
from datetime import timedelta
from typing import Any

import msgspec

from tidegate.crowd.waiting_room import rooms, scripts, tokens
from tidegate.crowd.waiting_room.keys import room_keys
from tidegate.crowd.waiting_room.rooms import Room
from tidegate.crowd.waiting_room.tokens import Session
from tidegate.database import Database, Transaction
from tidegate.kernel.clock import milliseconds, to_ms
from tidegate.kernel.errors import ValkeyUnavailable
from tidegate.kernel.ids import new_id
from tidegate.telemetry.logs import get_logger
from tidegate.valkey import Valkey

log = get_logger(__name__)

_SESSIONS_AT_ONCE = 1000
_TRIES = 5
_WITHIN = timedelta(seconds=5)
"""After so long somebody else installs the room: the process that began may be dead."""


class Recovery:
    """Installs one room on the server."""

    def __init__(self, valkey: Valkey, database: Database, room: str) -> None:
        self.room, self.keys = room, room_keys(valkey, room)
        self._valkey, self._database = valkey, database
        self._alone = asyncio.Lock()

    async def install(self, *, more_numbers: bool = False) -> Room:
        """Bring the server up to date with SQL; `more_numbers` also sets further arrival numbers aside."""
        async with self._alone:
            for _ in range(_TRIES):
                token = new_id()
                await self._pause(token)
                truth = await self._database.transaction(_begin, self.room, more_numbers)
                outcome = await self._send(truth, token)
                if outcome in (b"installed", b"newer"):
                    log.info("room.installed", room=self.room, epoch=truth.room.epoch, inside=len(truth.sessions))
                    return truth.room
                more_numbers = outcome == b"lost"
        raise ValkeyUnavailable(f"room {self.room!r} is lost, or paused by others, as soon as it is installed")

    async def _pause(self, token: str) -> None:
        """Let nobody in: what is read in SQL would be old by the time it is told, were people let in meanwhile."""
        now_ms, lasts_ms = self._database.clock.pinned_ms, milliseconds(_WITHIN)
        await scripts.pause(self._valkey, token=token, lasts_ms=lasts_ms, now_ms=now_ms, **self.keys)

    async def _send(self, truth: "_Truth", token: str) -> bytes:
        """In parts; the room is what SQL says with the last of them."""
        now = self._database.clock.now()
        room = truth.room
        opens_in_ms = -1 if room.opens_at is None else max(0, to_ms(room.opens_at) - to_ms(now))
        told = [(each.user, each.admission, each.left_ms(now), int(each.is_guest)) for each in truth.sessions]
        parts = [told[at : at + _SESSIONS_AT_ONCE] for at in range(0, len(told), _SESSIONS_AT_ONCE)] or [[]]
        outcome = b""
        for n, part in enumerate(parts, 1):
            outcome = await scripts.install(
                self._valkey,
                rules=_rules(room),
                opens_in_ms=opens_in_ms,
                numbers=truth.numbers,
                admission=truth.admission,
                sessions=part,
                token=token,
                is_last=int(n == len(parts)),
                now_ms=self._database.clock.pinned_ms,
                **self.keys,
            )
            if outcome != b"installed":
                break
        return outcome


class _Truth(msgspec.Struct, frozen=True):
    """What SQL knows of a room."""

    room: Room
    numbers: list[int]
    """The first and the last of the arrival numbers that were set aside just now, or nothing."""
    sessions: list[Session]
    admission: int
    """The last one."""


def _begin(tx: Transaction, name: str, more_numbers: bool) -> _Truth:
    room, first = rooms.begin_epoch(tx, name, more_numbers)
    numbers = [first, room.reserved] if more_numbers else []
    return _Truth(room, numbers, tokens.everybody_inside(tx, name), tokens.highest_admission(tx, name))


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
    }
