"""What a room's log and its rows say of the rules: the log step by step, the rows as one history."""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

import msgspec
from sqlalchemy import func, select

from chaos.crowd_process import USED
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Key, Valkey
from tidegate.systems.waiting_room import AdmissionState, WaitingRoom
from tidegate.systems.waiting_room.room_store import room_tokens

_PAGE = 5_000


class Token(msgspec.Struct, frozen=True):
    """A token that was used."""

    user: str
    place: int
    admission: int
    admitted_at: datetime
    ended_at: datetime | None


class Verdict(msgspec.Struct, kw_only=True):
    """The result; every list of breaches must be empty."""

    steps: int = 0
    joined: int = 0
    admitted: int = 0
    rolled_back: int = 0
    most_inside: int = 0
    """At any step of the log, and by the times of the token rows."""
    capacity: int = 0
    people: int = 0
    overtaken: int = 0
    """How many visitors saw one with a higher place admitted before them."""
    most_passed: int = 0
    """The largest number of visitors that overtook one visitor."""
    killed: int = 0
    frozen: int = 0
    leaders_hit: int = 0
    """How many of those killed or frozen were leading."""
    failures: int = 0
    """How often the database was away."""
    valkey_killed: int = 0
    """How often Valkey was killed and restarted with its data."""
    power_failures: int = 0
    """How often it came back without its last moments."""
    valkey_lost: int = 0
    """How often it lost everything."""
    took_s: float = 0
    breaches: list[str] = []

    @property
    def is_well(self) -> bool:
        """Whether every rule was kept."""
        return not self.breaches


class Presence:
    """Since when each visitor is present, as a part of the log says.

    The times of the log are in ms: an admission in the same ms as a join does not overtake the visitor that joins.
    """

    def __init__(self) -> None:
        self._last_admission = 0
        self.since: dict[str, int] = {}
        """The highest admission number before the visitor joined the last time.

        A visitor joins again where the server has lost the place: then the pass restores it.
        """

    def read(self, at_ms: int, what: str, users: list[list[str]]) -> None:
        """Take one step of the log. The number of an admission is at least a hundred times the server's ms."""
        for user, *rest in users:
            if what == "entering":
                self._last_admission = max(self._last_admission, int(rest[1]))
            elif what == "joined":
                self.since[user] = max(self._last_admission, at_ms * 100 - 1)

    def joined_with(self, other: "Presence") -> dict[str, int]:
        """For each visitor the later of what both say."""
        users = self.since.keys() | other.since.keys()
        return {user: max(self.since.get(user, 0), other.since.get(user, 0)) for user in users}


class Replay:
    """The room according to its log. The log lacks what the server lost; the rows are compared for that."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict, self._now_ms = verdict, 0
        self._places: dict[str, int] = {}
        self._front: list[tuple[int, str]] = []
        self._joined: set[str] = set()
        self._presence, self._lost_presence = Presence(), Presence()
        self.last_read = b""
        """The last entry that `read_presence` has read."""

    def read(self, entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        """Take the steps of a part of the log."""
        for entry, fields in entries:
            self._now_ms = int(entry.partition(b"-")[0])
            users: list[list[str]] = msgspec.msgpack.decode(fields[b"users"])
            self.step(fields[b"what"].decode(), users, int(fields[b"inside"]), int(fields[b"capacity"]))

    def read_presence(self, entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        """Record the joins in a part of the log that the server may lose soon."""
        for entry, fields in entries:
            self.last_read = entry
            users: list[list[str]] = msgspec.msgpack.decode(fields[b"users"])
            self._lost_presence.read(int(entry.partition(b"-")[0]), fields[b"what"].decode(), users)

    def present_since(self) -> dict[str, int]:
        """For each visitor the highest admission number before the visitor joined."""
        return self._presence.joined_with(self._lost_presence)

    def lost(self) -> None:
        """The server lost all data: the line is empty, and all visitors may join again."""
        self._places.clear()
        self._front.clear()
        self._joined.clear()

    def step(self, what: str, users: list[list[str]], inside: int, capacity: int) -> None:
        """Take one step of the log, and see that it broke no rule."""
        verdict = self._verdict
        verdict.steps += 1
        verdict.most_inside, verdict.capacity = max(verdict.most_inside, inside), capacity
        if inside > capacity:
            self._breach(f"{inside} inside after {what}, with room for {capacity}")
        self._presence.read(self._now_ms, what, users)
        for user, *rest in users:
            match what:
                case "joined" | "rolled_back":
                    self._waits(user, int(rest[0]), is_new=what == "joined")
                case "entering":
                    self._enters(user, int(rest[0]))
                case "admitted":
                    self._places.pop(user, None)
                    verdict.admitted += 1
                case "gave_up" | "dropped":
                    self._places.pop(user, None)
                case _:
                    pass

    def end(self) -> None:
        """Forget the line."""
        if self._places:
            self._breach(f"{len(self._places)} are still in line: {sorted(self._places)[:5]}")

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


async def audit(verdict: Verdict, replay: Replay, room: WaitingRoom, valkey: Valkey, database: Database) -> None:
    """Read the log to its end, and the rows."""
    async for page in _pages(valkey, room.line.keys["log"]):
        replay.read(page)
    replay.end()
    rows = await database.read(_rows, room.name)
    verdict.breaches.extend([*examine(rows, verdict), *check_order(rows, replay.present_since(), verdict)])


def check_order(rows: Sequence[Token], present_since: Mapping[str, int], verdict: Verdict) -> Iterator[str]:
    """Compare the sequence of all admissions with the places, and return the overtaken visitors.

    A visitor is overtaken by each visitor with a higher place that was admitted earlier while the first one was
    present. `present_since` has the highest admission number before each visitor joined.
    """
    higher: list[int] = []
    worst: Token | None = None
    for row in sorted(rows, key=lambda each: each.place, reverse=True):
        since = present_since.get(row.user, 0)
        passed = bisect_left(higher, row.admission) - bisect_right(higher, since)
        if passed > 0:
            verdict.overtaken += 1
            if passed > verdict.most_passed:
                verdict.most_passed, worst = passed, row
        insort(higher, row.admission)
    if worst is not None:
        yield f"{verdict.overtaken} were overtaken; {worst.user} at {worst.place} by {verdict.most_passed}"


def examine(rows: Sequence[Token], verdict: Verdict) -> Iterator[str]:
    """Check the token rows: each visitor was admitted once, from a unique place, and never too many at a time."""
    by_user = Counter(row.user for row in rows)
    if twice := [user for user, times in by_user.items() if times > 1]:
        yield f"{len(twice)} came in more than once: {sorted(twice)[:5]}"
    if len(by_user) != verdict.people:
        yield f"{len(by_user)} came in, of {verdict.people}"
    if shared := [place for place, times in Counter(row.place for row in rows).items() if times > 1]:
        yield f"{len(shared)} places were used more than once: {sorted(shared)[:5]}"
    moves = [(row.admitted_at, 1) for row in rows]
    moves += [(row.ended_at, -1) for row in rows if row.ended_at is not None]
    most = max(accumulate(change for _, change in sorted(moves)), default=0)
    verdict.most_inside = max(verdict.most_inside, most)
    if most > verdict.capacity:
        yield f"{most} were inside at once by their rows, with room for {verdict.capacity}"
    if unended := [row.user for row in rows if row.ended_at is None]:
        yield f"{len(unended)} have no end: {sorted(unended)[:5]}"


def steps_made(tx: Transaction, room: str) -> int:
    """The number of admissions and departures; it only grows, to two per visitor."""
    at = room_tokens.c
    count = select(func.count()).where(at.room == room)
    came = tx.execute(count.where(at.state.in_(USED))).scalar_one()
    return came + tx.execute(count.where(at.state.in_(USED), at.state != AdmissionState.ACTIVE)).scalar_one()


def _rows(tx: Transaction, room: str) -> list[Token]:
    at = room_tokens.c
    columns = select(at.user_id, at.place, at.admission, at.admitted_at, at.ended_at)
    return [Token(*row) for row in tx.execute(columns.where(at.room == room, at.state.in_(USED)))]


async def _pages(valkey: Valkey, log: Key) -> AsyncGenerator[list[tuple[bytes, Mapping[bytes, bytes]]]]:
    after = b"-"
    while True:
        found: list[Any] = await valkey.execute("XRANGE", log, after, "+", "COUNT", _PAGE)
        yield [(entry, fields) for entry, fields in found]
        if len(found) < _PAGE:
            return
        after = b"(" + found[-1][0]
