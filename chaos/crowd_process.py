"""A process of the crowd campaign: one that stands for election and admits visitors while it leads, until it is killed,
or one that plays a part of the crowd.

python -m chaos.crowd_process admit DATABASE VALKEY OWNER
python -m chaos.crowd_process crowd DATABASE VALKEY NAME PEOPLE LEAVING
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from sqlalchemy import select

from tidegate.core.backoff import Backoff
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.membership import Election, Membership, MembershipSettings
from tidegate.runtime.leadership import Heartbeat, Leadership
from tidegate.runtime.service import Restarts, keep_running
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import (
    AdmissionState,
    Entering,
    InLine,
    Inside,
    NotPresent,
    PassSigner,
    WaitingRoom,
    WaitingRooms,
    WaitingRoomSettings,
)
from tidegate.systems.waiting_room.model import VisitorAdmission
from tidegate.systems.waiting_room.room_store import room_tokens
from tidegate.systems.waiting_room.session_store import leave

ROOM, UNIT = "crowd", "crowd-campaign"
LEASES = MembershipSettings(lease=timedelta(seconds=2), renew_every=timedelta(milliseconds=600))
"""Short: a frozen leader has lost its lease when it continues, and is replaced soon when it is killed."""
AT_SHORT_PAUSES = Restarts(backoff=Backoff(first=timedelta(milliseconds=50), most=timedelta(seconds=1)))
SETTINGS = WaitingRoomSettings(settle_after=timedelta(seconds=2))
USED = (AdmissionState.ACTIVE, AdmissionState.EXPIRED, AdmissionState.LEFT)
_AT_ONCE = 50
_IN_SIGHT = 1_000
_AGAIN_S = 0.05
"""Pause before a visitor retries while a server is unavailable."""


async def open_signer() -> PassSigner:
    """Every process of the campaign signs with the same key."""
    return PassSigner([b"a key for all of this campaign.."])


async def admit(rooms: WaitingRooms, valkey: Valkey, owner: str) -> None:
    """Stand for election and run the room while elected, like every process of a deployment."""
    unit, never = valkey.unit(UNIT), asyncio.Event()
    heartbeat = Heartbeat(Membership(valkey, unit, owner, settings=LEASES))
    leadership = Leadership(
        Election(valkey, unit, owner), heartbeat, {"rooms": rooms.workers()}, restarts=AT_SHORT_PAUSES
    )
    await asyncio.gather(
        keep_running("heartbeat", heartbeat, never, restarts=AT_SHORT_PAUSES),
        keep_running("leadership", leadership, never, restarts=AT_SHORT_PAUSES),
    )


class Crowd:
    """Visitors that join one after the other, wait for admission, and leave or stay until their session ends."""

    def __init__(self, room: WaitingRoom, database: Database, name: str, leaving: float) -> None:
        self._room, self._database = room, database
        self._draw, self._leaving = random.Random(name), leaving
        self._staying: set[str] = set()
        self._passes: dict[str, str] = {}
        self._places: dict[str, int] = {}
        """The last pass of each visitor; it is presented if the server no longer knows the visitor."""

    async def play(self, people: list[str]) -> None:
        """Wait until all visitors have been inside."""
        await self._join_all(people)
        print("joined", flush=True)
        left = list(people)
        while left:
            seen, left = left[:_IN_SIGHT], left[_IN_SIGHT:]
            try:
                done = await self._turn(seen)
            except Unavailable:
                await asyncio.sleep(_AGAIN_S)
                done = set[str]()
            left = [user for user in seen if user not in done] + left
            await asyncio.sleep(0.1 * self._draw.random())

    async def _turn(self, users: Sequence[str]) -> set[str]:
        """Read where the visitors are and act accordingly; returns those that were inside and have left."""
        standings = dict(zip(users, (await self._room.standings(users)).standings, strict=True))
        inside = [user for user, at in standings.items() if isinstance(at, Inside) and user not in self._staying]
        leavers = [user for user in inside if self._draw.random() < self._leaving]
        self._staying |= set(inside) - set(leavers)
        for start in range(0, len(leavers), _AT_ONCE):
            await asyncio.gather(*(self._leave(user) for user in leavers[start : start + _AT_ONCE]))
        nowhere = [user for user, at in standings.items() if isinstance(at, NotPresent)]
        used = await self._database.read(_used, [self._places[user] for user in nowhere])
        await self._join_all([user for user in nowhere if user not in used])  # the server has forgotten them
        return used.intersection(nowhere)

    async def _join_all(self, users: Sequence[str]) -> None:
        for start in range(0, len(users), _AT_ONCE):
            await asyncio.gather(*(self._join(user) for user in users[start : start + _AT_ONCE]))

    async def _join(self, user: str) -> None:
        while True:
            with suppress(Unavailable):
                answer = await self._room.join(user, self._passes.get(user))
                if isinstance(answer.standing, (InLine, Entering)) and answer.standing.place is not None:
                    self._passes[user], self._places[user] = answer.token or "", answer.standing.place
                    return
            await asyncio.sleep(_AGAIN_S)
            # The visitor got no answer, but may be in line or inside already, and does not join a second time.
            with suppress(Unavailable):
                if (place := await self._database.read(_place_of, user)) is not None:
                    self._places[user] = place
                    return

    async def _leave(self, user: str) -> None:
        with suppress(Unavailable):  # the visitor is still inside then
            (standing,) = (await self._room.standings([user])).standings
            if isinstance(standing, Inside):
                entry = VisitorAdmission(user, standing.admission)
                await self._database.transaction(leave, ROOM, entry)
                await self._room.admitter.release([entry], "left")


def _used(tx: Transaction, places: Sequence[int]) -> set[str]:
    """Visitors that were admitted from one of these places."""
    at = room_tokens.c
    those = select(at.user_id).where(at.room == ROOM, at.place.in_(places), at.state.in_(USED))
    return set(tx.execute(those).scalars())


def _place_of(tx: Transaction, user: str) -> int | None:
    """The place from which the visitor was admitted."""
    at = room_tokens.c
    those = select(at.place).where(at.room == ROOM, at.user_id == user, at.state.in_(USED))
    return tx.execute(those).scalars().first()


async def _opened(url: str) -> Database:
    while True:
        with suppress(Unavailable):
            return await Database.open(url, connections=4)
        await asyncio.sleep(_AGAIN_S)


async def _connected(url: str) -> Valkey:
    while True:
        with suppress(Unavailable):
            return await Valkey.connect(url)
        await asyncio.sleep(_AGAIN_S)


async def main(part: str, database_url: str, valkey_url: str, *rest: str) -> None:
    """Play one part."""
    configure_logs("console", "error")
    valkey = await _connected(valkey_url)
    async with await _opened(database_url) as database:
        rooms = WaitingRooms(valkey, database, open_signer, SETTINGS)
        print("there", flush=True)
        if part == "admit":
            await admit(rooms, valkey, *rest)
        else:
            name, people, leaving = rest
            crowd = Crowd(await _found(rooms), database, name, float(leaving))
            await crowd.play([f"{name}-{n:06}" for n in random.sample(range(int(people)), int(people))])
    await valkey.close()


async def _found(rooms: WaitingRooms) -> WaitingRoom:
    while True:
        with suppress(Unavailable):
            return await rooms.room(ROOM)
        await asyncio.sleep(_AGAIN_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
