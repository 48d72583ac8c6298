"""Tells those who watch lines that one moved: one blocking read for all the rooms that this process watches.

Every step that changes where somebody stands adds to the room's stream of moves, in whatever process it is made. What
it says is not read here: whoever is woken looks for himself, so that a wake-up that is lost, or one too many, costs a
look and never a wrong answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tidegate.core.backoff import Backoff
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.stream.message import Entry
from tidegate.primitives.stream.readers import BlockingReader, PausingReader, Reader
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, only_our_cancellation
from tidegate.storage.valkey import Key, Valkey
from tidegate.systems.waiting_room.keys import room_keys

log = get_logger(__name__)

_LISTEN_S = 60.0
"""How long one blocking read lasts; after each in vain, the reader makes sure that it is where the streams are."""
_AT_ONCE = 500
_PAUSES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=2), jitter=0.5)
"""Shorter than those of other services: visitors watch."""


class _Followed:
    """A room that is watched."""

    def __init__(self, group: str, key: Key, wake: Callable[[], None]) -> None:
        self.group, self.key, self.wake = group, key, wake
        self.position = ""
        """The last entry that was seen; empty: somebody has to look where the stream is."""


class Moves:
    """The moves of all rooms that somebody in this process watches."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._followed: list[_Followed] = []
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._outage = Outage("room.moves", pauses=_PAUSES)

    @asynccontextmanager
    async def watch(self, room: str, wake: Callable[[], None]) -> AsyncGenerator[None]:
        """Have `wake` called whenever this room moved, for the length of a block.

        It is called once at the beginning, from when on nothing is missed.
        """
        # Rooms of a group can be read by one command; in a cluster each lives somewhere else.
        group = room if self._valkey.is_cluster else ""
        followed = _Followed(group, room_keys(self._valkey, room)["moves"], wake)
        self._followed.append(followed)
        try:
            await self._read_anew(group)
            yield
        finally:
            self._followed.remove(followed)
            await self._read_anew(group)

    async def _read_anew(self, group: str) -> None:
        """Begin the blocking read again, with the rooms that are watched now."""
        if (reading := self._readers.pop(group, None)) is not None:
            await end(reading)
        if group not in self._readers and any(each.group == group for each in self._followed):
            self._readers[group] = asyncio.create_task(self._read(group), name="read the moves of rooms")

    async def _read(self, group: str) -> None:
        """Follow the streams until cancelled, whatever happens to the connection."""
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
                    while await reader.wait(_AT_ONCE, _LISTEN_S):
                        pass
            except Exception as error:  # watchers wait for news, whatever the error is
                failures += 1
                for followed in rooms:
                    followed.position = ""  # watchers are woken when the server is back
                if isinstance(error, Unavailable):
                    await self._outage.pause(error, failures)
                else:
                    log.warning("room.moves_unread", tries=failures, exc_info=error)
                    await asyncio.sleep(_PAUSES.delay(failures).total_seconds())

    async def _catch_up(self, rooms: Sequence[_Followed]) -> None:
        """Go to the ends of the streams; where one is not where we were, something may have been missed."""
        for followed in rooms:
            newest: Any = await self._valkey.execute("XREVRANGE", followed.key, "+", "-", "COUNT", 1)
            position = newest[0][0].decode() if newest else "0-0"
            if position != followed.position:
                followed.position = position
                followed.wake()

    async def _fetch(self, rooms: Sequence[_Followed], count: int, block_ms: int | None) -> list[Entry]:
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
