"""Shows watching visitors where they stand: one follower per room that is watched in this process.

`MoveReader` reads the streams of moves of all watched rooms with one blocking read. Every step that changes a position
adds an entry; its contents are not used, so a lost or additional wake-up costs one query and never a wrong result.

A follower waits until its room moves. Then it reads the positions of all watchers, in batches that do not block the
server for long. Reading counts as a sign of life, so it also reads while the line stands still. However fast the line
moves, the follower pauses between two reads.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol

from tidegate.core.arguments import require_positive
from tidegate.core.backoff import Backoff
from tidegate.core.errors import TooManyWaiting, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.stream.consumer import BlockingReader, PausingReader, Reader
from tidegate.primitives.stream.message import Entry
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs, only_our_cancellation
from tidegate.storage.valkey import Key, Valkey
from tidegate.systems.waiting_room.line import Pace
from tidegate.systems.waiting_room.metrics import ROOM_WATCHERS
from tidegate.systems.waiting_room.model import LineView, Standing
from tidegate.systems.waiting_room.scripts import room_keys
from tidegate.systems.waiting_room.waiting_room import WaitingRoom

log = get_logger(__name__)
_LISTEN_S = 60.0
"""Duration of one blocking read. After one without entries, the reader checks its position in the streams."""
_MOVES_PER_READ = 500
_READ_PAUSES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=2), jitter=0.5)
"""Shorter than those of other services, since visitors are watching."""


class _WatchedRoom:
    """A room that is watched."""

    def __init__(self, group: str, key: Key, wake: Callable[[], None]) -> None:
        self.group, self.key, self.wake = group, key, wake
        self.position = ""
        """Id of the last entry that was read; empty if the position in the stream has to be read first."""


class MoveReader:
    """Follows the moves of all rooms that are watched in this process."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._followed: list[_WatchedRoom] = []
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._outage = Outage("room.moves", pauses=_READ_PAUSES)

    @asynccontextmanager
    async def watch(self, room: str, wake: Callable[[], None]) -> AsyncGenerator[None]:
        """Call `wake` whenever this room moves, for the duration of the block.

        `wake` is called once at the beginning; no later move is missed.
        """
        # One command can read the streams of one group; in a cluster, each room is a group of its own.
        group = room if self._valkey.is_cluster else ""
        followed = _WatchedRoom(group, room_keys(self._valkey, room)["moves"], wake)
        # A blocking read has a fixed list of streams, so it is restarted whenever the list changes.
        self._followed.append(followed)
        try:
            await self._read_anew(group)
            yield
        finally:
            self._followed.remove(followed)
            await self._read_anew(group)

    async def _read_anew(self, group: str) -> None:
        """Restart the blocking read with the rooms that are watched now."""
        if (reading := self._readers.pop(group, None)) is not None:
            await end(reading)
        # During the await, another caller may have started a reader with the current list.
        if group not in self._readers and any(each.group == group for each in self._followed):
            self._readers[group] = asyncio.create_task(self._read(group), name="read the moves of rooms")

    async def _read(self, group: str) -> None:
        """Follow the streams until cancelled; failures are retried."""
        rooms = [each for each in self._followed if each.group == group]
        failures = 0

        async def fetch(count: int, block_ms: int | None) -> list[Entry]:
            return await self._fetch(rooms, count, block_ms)

        reader: Reader = (BlockingReader if self._valkey.info.can_block else PausingReader)(fetch)
        while True:
            try:
                with only_our_cancellation():
                    await self._catch_up(rooms)
                    failures = 0
                    self._outage.over()
                    while await reader.wait(_MOVES_PER_READ, _LISTEN_S):
                        pass
            except Exception as error:  # watchers wait for updates, so no error may end the reader
                failures += 1
                for followed in rooms:
                    followed.position = ""  # watchers are woken when the server is back
                if isinstance(error, Unavailable):
                    await self._outage.pause(error, failures)
                else:
                    log.warning("room.read_failed", tries=failures, exc_info=error)
                    await asyncio.sleep(_READ_PAUSES.delay(failures).total_seconds())

    async def _catch_up(self, rooms: Sequence[_WatchedRoom]) -> None:
        """Go to the ends of the streams, and wake watchers of streams that have moved since the last read."""
        for followed in rooms:
            newest: Any = await self._valkey.execute("XREVRANGE", followed.key, "+", "-", "COUNT", 1)
            position = newest[0][0].decode() if newest else "0-0"
            # Differs also if the stream was lost and is shorter now.
            if position != followed.position:
                followed.position = position
                followed.wake()

    async def _fetch(self, rooms: Sequence[_WatchedRoom], count: int, block_ms: int | None) -> list[Entry]:
        block = () if block_ms is None else ("BLOCK", block_ms)
        keys, positions = [each.key for each in rooms], [each.position for each in rooms]
        reply: Any = await self._valkey.execute_blocking(
            "XREAD", "COUNT", count, *block, "STREAMS", *keys, *positions, within_s=(block_ms or 0) / 1000
        )
        found: list[Entry] = []
        for followed in rooms:
            entries = (reply or {}).get(followed.key.encode())
            if entries:
                followed.position = entries[-1][0].decode()
                followed.wake()
                found += entries
        return found


_BATCH = 1000
_GAP_S = 0.5
"""Least time between the beginnings of two reads of all watchers."""
_REST = 1.5
"""Pause after a read of all watchers, as a multiple of its CPU time: at most two fifths of one core are used."""
_MOST_EACH = 6
"""Most connections with which one user may watch."""
_SIGNS = 3
"""Signs of life that a watching visitor gives within the time after which they would be removed."""
_OVER_S = 0.002
"""Added to the announced start, so that it has passed when the room is read."""
_FOLLOW_PAUSES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=2), jitter=0.5)
"""Shorter than those of other services, since visitors are watching."""


class PlaceWatcher(Protocol):
    """A connection that shows one visitor's place. A user may have several."""

    user: str

    def show(self, standing: Standing, view: LineView, pace: Pace | None) -> None:
        """Show where the visitor stands. Must not raise and must not block."""
        ...


class RoomWatchers:
    """All watchers of one room in this process."""

    def __init__(self, room: WaitingRoom, moves: MoveReader) -> None:
        self.room = room
        self.watchers: set[PlaceWatcher] = set()
        self._users = Counter[str]()
        self._moves = moves
        self._new: list[PlaceWatcher] = []
        self._has_moved = True
        self._stir = asyncio.Event()
        self._pace: Pace | None = None
        self._failures = 0
        self._outage = Outage("room.watch", pauses=_FOLLOW_PAUSES)

    def join(self, watcher: PlaceWatcher) -> None:
        """Add a watcher, which is shown its place soon and after each change. Raises `TooManyWaiting`."""
        if self._users[watcher.user] >= _MOST_EACH:
            raise TooManyWaiting("the place of one user", most=_MOST_EACH)
        self._users[watcher.user] += 1
        self.watchers.add(watcher)
        self._new.append(watcher)
        self._stir.set()

    def leave(self, watcher: PlaceWatcher) -> None:
        """Stop showing updates to a watcher."""
        self.watchers.remove(watcher)
        self._users[watcher.user] -= 1
        if not self._users[watcher.user]:
            del self._users[watcher.user]

    async def follow(self) -> None:
        """Update the watchers until cancelled; failures are retried."""
        async with self._moves.watch(self.room.name, self._move):
            while True:
                try:
                    with only_our_cancellation():
                        await self._follow_places()
                except Exception as error:  # visitors are watching, so no error may end the follower
                    self._has_moved = True
                    self._failures += 1
                    if isinstance(error, Unavailable):
                        await self._outage.pause(error, self._failures)
                    else:
                        log.warning("room.watch_failed", room=self.room.name, tries=self._failures, exc_info=error)
                        await asyncio.sleep(_FOLLOW_PAUSES.delay(self._failures).total_seconds())

    def _move(self) -> None:
        self._has_moved = True
        self._stir.set()

    async def _follow_places(self) -> None:
        """Show watchers their places after moves, at due times, and when they join."""
        loop = asyncio.get_running_loop()
        not_before = due = loop.time()
        while True:
            self._stir.clear()
            now = loop.time()
            # `_has_moved` is cleared before the read: a move during it causes another read.
            if now >= not_before and (self._has_moved or now >= due):
                self._has_moved, busy_s = False, time.thread_time()
                due = await self._read_all_places() + loop.time()
                # CPU time of this thread: waiting for the server does not lengthen the pause.
                rest_s = _REST * (time.thread_time() - busy_s)
                not_before = max(now + _GAP_S, loop.time() + rest_s)
            # New watchers get their first state at once, without a read of all others.
            elif self._new:
                newcomers, self._new = self._new, []  # watchers that come meanwhile are read together
                await self._read_places(newcomers)
            else:
                # A move during the pause waits for its end; otherwise the next sign of life is due.
                until = not_before if self._has_moved else max(due, not_before)
                await occurs(self._stir, within_s=max(until - now, _OVER_S))

    async def _read_all_places(self) -> float:
        """Show all watchers their places; return after how many seconds to read again if nothing moves."""
        # They are part of `watchers`, which are all read now.
        self._new.clear()
        self._pace = await self.room.pace()
        opens_in_ms = await self._read_places(list(self.watchers))
        patience_s = self.room.room.plan.abandon_after.total_seconds() / _SIGNS
        return min(patience_s, opens_in_ms / 1000 + _OVER_S) if opens_in_ms else patience_s

    async def _read_places(self, watchers: Sequence[PlaceWatcher]) -> int:
        """Show watchers their places; return the ms until the start."""
        opens_in_ms = 0
        for at in range(0, len(watchers), _BATCH):
            part = watchers[at : at + _BATCH]
            view = await self.room.standings([watcher.user for watcher in part])
            for watcher, standing in zip(part, view.standings, strict=True):
                watcher.show(standing, view, self._pace)
            opens_in_ms = view.opens_in_ms
        self._failures = 0
        self._outage.over()
        return opens_in_ms


class WatcherRegistry:
    """All watchers of rooms in this process."""

    def __init__(self, valkey: Valkey, *, most: int) -> None:
        """At most `most` watchers at the same time."""
        require_positive("most", most)
        self._moves, self._most, self._count = MoveReader(valkey), most, 0
        self._audiences: dict[str, tuple[RoomWatchers, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return self._count

    def join(self, room: WaitingRoom, watcher: PlaceWatcher) -> None:
        """Add a watcher. Raises `TooManyWaiting`. Every watcher must be removed with `leave`."""
        if self._count >= self._most:
            raise TooManyWaiting("places", most=self._most)
        # Every room has one follower, started by its first watcher and ended by its last.
        if room.name not in self._audiences:
            audience = RoomWatchers(room, self._moves)
            self._audiences[room.name] = audience, asyncio.create_task(audience.follow(), name=f"watch {room.name}")
        self._audiences[room.name][0].join(watcher)
        self._change(room, 1)

    async def leave(self, room: WaitingRoom, watcher: PlaceWatcher) -> None:
        """Remove a watcher; a room without watchers is not followed."""
        audience, following = self._audiences[room.name]
        audience.leave(watcher)
        self._change(room, -1)
        if not audience.watchers:
            # Before the await: a watcher that joins meanwhile starts a new follower.
            del self._audiences[room.name]
            await end(following)

    def _change(self, room: WaitingRoom, by: int) -> None:
        self._count += by
        ROOM_WATCHERS.labels(room.name).inc(by)
