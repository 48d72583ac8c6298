"""Where readers wait who cannot be answered at once: for a look at the server, or, with `?wait=`, for a refresh.

However many wait for one subject, one task does it for them: it looks once, and hands the same bytes to all. Readers
need no tasks of their own: a thousand of them are released in the time that it takes to send a thousand answers. What
cannot be answered here takes the long way, which knows all errors.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.change_feed import Watch
from tidegate.systems.snapshots.local import Place
from tidegate.systems.snapshots.news import News
from tidegate.systems.snapshots.query import SnapshotAnswer

log = get_logger(__name__)

_LEAST_S = 0.001

Read = Callable[[str, str], Awaitable[SnapshotAnswer]]


class Visitor(Protocol):
    """Somebody who waits: `deadline` is on the monotonic clock, and in the past for who does not want to."""

    deadline: float

    def release(self, answer: SnapshotAnswer) -> None:
        """Here is the answer."""
        ...

    def divert(self) -> None:
        """Nobody here can answer: take the long way."""
        ...


class _Group:
    """Those who wait for one subject."""

    def __init__(self) -> None:
        self.visitors: set[Visitor] = set()
        self.watch: Watch | None = None

    def release(self, answer: SnapshotAnswer, *, all_of_them: bool) -> None:
        now = time.monotonic()
        going = [each for each in self.visitors if all_of_them or each.deadline <= now]
        self.visitors.difference_update(going)
        for each in going:
            each.release(answer)

    def patience_s(self) -> float:
        return max(_LEAST_S, min(each.deadline for each in self.visitors) - time.monotonic())


class Lobby:
    """Everybody who waits in this process."""

    def __init__(self, read: Read, news: News) -> None:
        self._read, self._news = read, news
        self._groups: dict[Place, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def __len__(self) -> int:
        return sum(len(group.visitors) for group in self._groups.values())

    def join(self, place: Place, visitor: Visitor) -> None:
        """Wait. Whoever comes later than others has the subject looked at anew."""
        group = self._groups.get(place)
        if group is not None:
            group.visitors.add(visitor)
            if group.watch is not None:
                group.watch.wake()
            return
        group = self._groups[place] = _Group()
        group.visitors.add(visitor)
        task = asyncio.create_task(self._attend(place, group), name=f"attend {place[0]}/{place[1]}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, place: Place, visitor: Visitor) -> None:
        """Wait no more; what is under way for others goes on."""
        group = self._groups.get(place)
        if group is not None:
            group.visitors.discard(visitor)
            if not group.visitors and group.watch is not None:
                group.watch.wake()

    def close(self) -> None:
        """Nobody waits any longer: all are told how things stand."""
        self._is_closing = True
        for group in self._groups.values():
            if group.watch is not None:
                group.watch.wake()

    async def _attend(self, place: Place, group: _Group) -> None:
        try:
            async with self._news.watch([f"{place[0]}/{place[1]}"]) as group.watch:
                while group.visitors:
                    answer = await self._read(*place)
                    group.release(answer, all_of_them=answer.is_settled or self._is_closing)
                    if group.visitors:
                        await group.watch.news(group.patience_s())
                self._disband(place, group)  # before anything is awaited: whoever comes now finds no group
        except Exception as error:  # whatever it was: the long way explains it to each of them
            log.debug("http.diverted", subject=f"{place[0]}/{place[1]}", error=str(error) or type(error).__name__)
            self._disband(place, group)
            for each in list(group.visitors):
                each.divert()

    def _disband(self, place: Place, group: _Group) -> None:
        if self._groups.get(place) is group:
            del self._groups[place]
