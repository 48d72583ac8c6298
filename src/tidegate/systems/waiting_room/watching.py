"""Shows many people where they stand, as it changes: one follower for each room that somebody here watches.

The follower sleeps until the room moves. Then it looks at all who watch, in batches that do not hold the server up, and
shows each his standing. To look is a sign of life, so it also looks when the line stands still: whoever watches is
never taken for gone. However fast the room moves, between two looks there is a rest.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from tidegate.core.arguments import require_positive
from tidegate.core.backoff import Backoff
from tidegate.core.errors import TooManyWaiting, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import ROOM_WATCHERS
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs, only_our_cancellation
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room.estimate import Pace
from tidegate.systems.waiting_room.line import Crowd, Standing
from tidegate.systems.waiting_room.moves import Moves
from tidegate.systems.waiting_room.waiting_room import WaitingRoom

log = get_logger(__name__)

_AT_ONCE = 1000
_GAP_S = 0.5
"""The least time from the beginning of a look at all to that of the next."""
_REST = 1.5
"""After a look at all there is a rest of so many times the CPU time that it took: two fifths of one core at most."""
_MOST_EACH = 6
"""So often one user may watch at once, in several windows: the place of others is not his."""
_SIGNS = 3
"""Signs of life that somebody who watches gives in the time after which he would be taken for gone."""
_OVER_S = 0.002
"""So much later than told the start is looked for, that it surely has come."""
_PAUSES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=2), jitter=0.5)
"""Shorter than those of other services: visitors watch."""


class Watcher(Protocol):
    """Somebody who watches; a user may watch several times over."""

    user: str

    def show(self, standing: Standing, crowd: Crowd, pace: Pace | None) -> None:
        """Here is where the user stands. Must not raise, and not wait."""
        ...


class Audience:
    """All who watch one room in this process."""

    def __init__(self, room: WaitingRoom, moves: Moves) -> None:
        self.room = room
        self.watchers: set[Watcher] = set()
        self._users = Counter[str]()
        self._moves = moves
        self._new: list[Watcher] = []
        self._has_moved = True
        self._stir = asyncio.Event()
        self._pace: Pace | None = None
        self._failures = 0
        self._outage = Outage("room.watch", pauses=_PAUSES)

    def join(self, watcher: Watcher) -> None:
        """Be shown where one stands, soon and from then on; raise `TooManyWaiting`."""
        if self._users[watcher.user] >= _MOST_EACH:
            raise TooManyWaiting("the place of one user", most=_MOST_EACH)
        self._users[watcher.user] += 1
        self.watchers.add(watcher)
        self._new.append(watcher)
        self._stir.set()

    def leave(self, watcher: Watcher) -> None:
        """Watch no more."""
        self.watchers.remove(watcher)
        self._users[watcher.user] -= 1
        if not self._users[watcher.user]:
            del self._users[watcher.user]

    async def follow(self) -> None:
        """Until cancelled, whatever becomes of the servers."""
        async with self._moves.watch(self.room.name, self._move):
            while True:
                try:
                    with only_our_cancellation():
                        await self._look_on()
                except Exception as error:  # visitors watch, whatever the error is
                    self._has_moved = True
                    self._failures += 1
                    if isinstance(error, Unavailable):
                        await self._outage.pause(error, self._failures)
                    else:
                        log.warning("room.unseen", room=self.room.name, tries=self._failures, exc_info=error)
                        await asyncio.sleep(_PAUSES.delay(self._failures).total_seconds())

    def _move(self) -> None:
        self._has_moved = True
        self._stir.set()

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        not_before = due = loop.time()
        while True:
            self._stir.clear()
            now = loop.time()
            if now >= not_before and (self._has_moved or now >= due):
                self._has_moved, busy_s = False, time.thread_time()
                due = await self._look_at_all() + loop.time()
                rest_s = _REST * (time.thread_time() - busy_s)
                not_before = max(now + _GAP_S, loop.time() + rest_s)
            elif self._new:
                newcomers, self._new = self._new, []  # those who come meanwhile are looked at together
                await self._look_at(newcomers)
            else:
                until = not_before if self._has_moved else max(due, not_before)
                await occurs(self._stir, within_s=max(until - now, _OVER_S))

    async def _look_at_all(self) -> float:
        """Look, and say in how many seconds somebody must look again, also if nothing moves."""
        self._new.clear()
        self._pace = await self.room.pace()
        opens_in_ms = await self._look_at(list(self.watchers))
        patience_s = self.room.room.plan.abandon_after.total_seconds() / _SIGNS
        return min(patience_s, opens_in_ms / 1000 + _OVER_S) if opens_in_ms else patience_s

    async def _look_at(self, watchers: Sequence[Watcher]) -> int:
        """Show each his standing; the ms until the start."""
        opens_in_ms = 0
        for at in range(0, len(watchers), _AT_ONCE):
            part = watchers[at : at + _AT_ONCE]
            crowd = await self.room.look_at([watcher.user for watcher in part])
            for watcher, standing in zip(part, crowd.standings, strict=True):
                watcher.show(standing, crowd, self._pace)
            opens_in_ms = crowd.opens_in_ms
        self._failures = 0
        self._outage.over()
        return opens_in_ms


class Watching:
    """All who watch rooms in this process."""

    def __init__(self, valkey: Valkey, *, most: int) -> None:
        """`most` may watch at once."""
        require_positive("most", most)
        self._moves, self._most, self._count = Moves(valkey), most, 0
        self._audiences: dict[str, tuple[Audience, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return self._count

    def join(self, room: WaitingRoom, watcher: Watcher) -> None:
        """Be shown where one stands; raise `TooManyWaiting`. Whoever joined must leave."""
        if self._count >= self._most:
            raise TooManyWaiting("places", most=self._most)
        if room.name not in self._audiences:
            audience = Audience(room, self._moves)
            self._audiences[room.name] = audience, asyncio.create_task(audience.follow(), name=f"watch {room.name}")
        self._audiences[room.name][0].join(watcher)
        self._change(room, 1)

    async def leave(self, room: WaitingRoom, watcher: Watcher) -> None:
        """Watch no more; nobody looks at a room that nobody watches."""
        audience, following = self._audiences[room.name]
        audience.leave(watcher)
        self._change(room, -1)
        if not audience.watchers:
            del self._audiences[room.name]
            await end(following)

    def _change(self, room: WaitingRoom, by: int) -> None:
        self._count += by
        ROOM_WATCHERS.labels(room.name).inc(by)
