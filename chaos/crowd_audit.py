"""What a room's log and its rows say of the rules, step by step."""

import heapq
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from sqlalchemy import func, select

from tidegate.crowd.waiting_room import TokenState, WaitingRoom
from tidegate.crowd.waiting_room.tables import room_tokens
from tidegate.database import Database, Transaction
from tidegate.valkey import Key, Valkey

_PAGE = 5_000
_USED = (TokenState.ACTIVE, TokenState.EXPIRED, TokenState.LEFT)


class Verdict(msgspec.Struct, kw_only=True):
    """What was found; every list of breaches must be empty."""

    steps: int = 0
    joined: int = 0
    admitted: int = 0
    rolled_back: int = 0
    most_inside: int = 0
    capacity: int = 0
    killed: int = 0
    frozen: int = 0
    failures: int = 0
    """How often the database was away."""
    took_s: float = 0
    breaches: list[str] = []

    @property
    def is_well(self) -> bool:
        """Whether every rule was kept."""
        return not self.breaches


class Replay:
    """The room as its log tells it."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._places: dict[str, int] = {}
        self._front: list[tuple[int, str]] = []
        self._came_in = Counter[str]()
        self._joined: set[str] = set()

    def step(self, what: str, users: list[list[str]], inside: int, capacity: int) -> None:
        """Take one step of the log, and see that it broke no rule."""
        verdict = self._verdict
        verdict.steps += 1
        verdict.most_inside, verdict.capacity = max(verdict.most_inside, inside), capacity
        if inside > capacity:
            self._breach(f"{inside} inside after {what}, with room for {capacity}")
        for user, *rest in users:
            match what:
                case "joined" | "rolled_back":
                    self._waits(user, int(rest[0]), is_new=what == "joined")
                case "entering":
                    self._enters(user, int(rest[0]))
                case "admitted":
                    self._came_in[user] += 1
                    verdict.admitted += 1
                case "gave_up" | "dropped":
                    self._places.pop(user, None)
                case _:
                    pass

    def end(self) -> None:
        """Everybody who joined came in, once."""
        if lost := self._joined - self._came_in.keys():
            self._breach(f"{len(lost)} joined and never came in: {sorted(lost)[:5]}")
        if twice := [user for user, times in self._came_in.items() if times > 1]:
            self._breach(f"{len(twice)} came in more than once: {twice[:5]}")

    def _waits(self, user: str, place: int, *, is_new: bool) -> None:
        if is_new:
            self._verdict.joined += 1
            if user in self._joined:
                self._breach(f"{user} joined twice")
            self._joined.add(user)
        else:
            self._verdict.rolled_back += 1
        self._places[user] = place
        heapq.heappush(self._front, (place, user))

    def _enters(self, user: str, place: int) -> None:
        while self._front and self._places.get(self._front[0][1]) != self._front[0][0]:
            heapq.heappop(self._front)
        if self._front and self._front[0][0] < place:
            self._breach(f"{user} at {place} overtook {self._front[0]}")
        if self._places.pop(user, None) != place:
            self._breach(f"{user} entered from {place}, where he was not")

    def _breach(self, what: str) -> None:
        if len(self._verdict.breaches) < 20:
            self._verdict.breaches.append(what)


async def audit(verdict: Verdict, room: WaitingRoom, valkey: Valkey, database: Database, *, people: int) -> None:
    """Read the whole log, and the rows."""
    replay = Replay(verdict)
    async for fields in _entries(valkey, room.line.keys["log"]):
        users: list[list[str]] = msgspec.msgpack.decode(fields[b"users"])
        replay.step(fields[b"what"].decode(), users, int(fields[b"inside"]), int(fields[b"capacity"]))
    replay.end()
    if verdict.joined != people:
        verdict.breaches.append(f"{verdict.joined} joined, of {people}")
    rows = await database.read(_rows, room.name)
    if rows != {1: people}:
        verdict.breaches.append(f"people by how many tokens they used: {rows}")


def _rows(tx: Transaction, room: str) -> dict[int, int]:
    """How many people used so many tokens."""
    at = room_tokens.c
    used = select(func.count().label("times")).where(at.room == room, at.state.in_(_USED)).group_by(at.user_id)
    each = used.subquery()
    return {row[0]: row[1] for row in tx.execute(select(each.c.times, func.count()).group_by(each.c.times))}


async def _entries(valkey: Valkey, log: Key) -> AsyncGenerator[dict[bytes, bytes]]:
    after = b"-"
    while True:
        found: list[Any] = await valkey.execute("XRANGE", log, after, "+", "COUNT", _PAGE)
        for _, fields in found:
            yield fields
        if len(found) < _PAGE:
            return
        after = b"(" + found[-1][0]
