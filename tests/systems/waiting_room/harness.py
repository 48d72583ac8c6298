"""Rooms for the tests, on a clock that stands still: a rooms, and the keeper that the leader would run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import msgspec
from sqlalchemy import select

from tidegate.core.clock import Clock, ManualClock
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import Inside, PassSigner, RoomPlan, WaitingRoom, WaitingRooms, WaitingRoomSettings
from tidegate.systems.waiting_room.room_store import room_tokens
from tidegate.systems.waiting_room.worker import RoomWorker

KEY = b"a key of the tests, of 32 bytes."
SETTLE_AFTER = timedelta(seconds=10)
ROOM = "sale"


@dataclass
class RoomHarness:
    """An installation with its rooms."""

    valkey: Valkey
    database: Database
    clock: ManualClock
    rooms: WaitingRooms

    async def open(self, **plan: Any) -> WaitingRoom:
        """A room that is open."""
        values: dict[str, Any] = {"capacity": 1, "log_length": 10_000, **plan}
        await self.rooms.create(ROOM, RoomPlan(**values))
        room = await self.rooms.open(ROOM)
        await self.run_worker()
        return room

    @cached_property
    def worker(self) -> RoomWorker:
        """Of the room; it installs it when it first looks."""
        return self.rooms.worker(ROOM)

    async def run_worker(self) -> int | None:
        """What the leader does until there is nothing to do; in how many ms there is more."""
        keeper = self.worker
        for _ in range(1000):
            next_in_ms = await keeper.fire()
            if next_in_ms != 0:
                return next_in_ms
        raise AssertionError("the keeper never rests")

    async def states(self) -> list[tuple[str, str]]:
        """Every admission that there ever was: user and state, in their order."""
        return await self.database.read(_states)


async def add_visitors(room: WaitingRoom, *users: str) -> list[str]:
    """They join one after the other; their passes."""
    return [(await room.join(user)).token or "" for user in users]


async def inside(room: WaitingRoom, *users: str) -> list[str]:
    """Those of them who are inside."""
    crowd = await room.standings(users)
    return [user for user, at in zip(users, crowd.standings, strict=True) if isinstance(at, Inside) and at.left_ms > 0]


async def line(room: WaitingRoom, valkey: Valkey) -> list[str]:
    """The line, from its front."""
    return [user.decode() for user in await valkey.execute("ZRANGE", room.line.keys["waiting"], 0, -1)]


async def steps(room: WaitingRoom, valkey: Valkey) -> list[tuple[str, list[str], int, int]]:
    """The room's log: what happened, to whom, how many count against the capacity afterwards, and the capacity."""
    entries = await valkey.execute("XRANGE", room.line.keys["log"], "-", "+")
    return [
        (
            fields[b"what"].decode(),
            [each[0] for each in msgspec.msgpack.decode(fields[b"users"])],
            int(fields[b"inside"]),
            int(fields[b"capacity"]),
        )
        for _, fields in entries
    ]


@asynccontextmanager
async def harness_at(url: str, valkey: Valkey, clock: Clock) -> AsyncGenerator[RoomHarness]:
    """A harness on this database, which has all tables."""
    async with await Database.open(url, clock=clock) as database:
        settings = WaitingRoomSettings(settle_after=SETTLE_AFTER)
        rooms = WaitingRooms(valkey, database, open_signer, settings)
        assert isinstance(clock, ManualClock)
        yield RoomHarness(valkey, database, clock, rooms)


async def open_signer() -> PassSigner:
    return PassSigner([KEY])


def _states(tx: Transaction) -> list[tuple[str, str]]:
    at = room_tokens.c
    return [(row.user_id, row.state) for row in tx.execute(select(at.user_id, at.state).order_by(at.admission))]
