"""Requests that cannot be answered at once wait here: for a read from the server, or, with `?wait=`, for a refresh.

All requests for one subject share one task. It reads once, and all of them get the same bytes; a request has no task of
its own. When the read fails, the requests are passed on to the application, which knows how to report each error.
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

_SHORTEST_WAIT_S = 0.001

Read = Callable[[str, str], Awaitable[SnapshotAnswer]]


class WaitingRequest(Protocol):
    """A request that waits for its answer."""

    deadline: float
    """On the monotonic clock; in the past for a request that does not wait for a refresh."""

    def respond(self, answer: SnapshotAnswer) -> None:
        """Send the answer."""
        ...

    def decline(self) -> None:
        """Pass the request on to the application."""
        ...


class _Group:
    """The requests for one subject."""

    def __init__(self) -> None:
        self.requests: set[WaitingRequest] = set()
        self.watch: Watch | None = None

    def respond(self, answer: SnapshotAnswer, *, to_all: bool) -> None:
        """Answer all requests, or those whose deadline has passed."""
        now = time.monotonic()
        answered = [each for each in self.requests if to_all or each.deadline <= now]
        self.requests.difference_update(answered)
        for each in answered:
            each.respond(answer)

    def until_deadline_s(self) -> float:
        """How long until the first deadline."""
        return max(_SHORTEST_WAIT_S, min(each.deadline for each in self.requests) - time.monotonic())


class ReadCoalescer:
    """All waiting requests of this process."""

    def __init__(self, read: Read, news: News) -> None:
        self._read, self._news = read, news
        self._groups: dict[Place, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def __len__(self) -> int:
        return sum(len(group.requests) for group in self._groups.values())

    def join(self, place: Place, request: WaitingRequest) -> None:
        """Have a request answered. When others wait for the same subject already, it is read again."""
        group = self._groups.get(place)
        if group is not None:
            group.requests.add(request)
            if group.watch is not None:
                group.watch.wake()
            return
        group = self._groups[place] = _Group()
        group.requests.add(request)
        task = asyncio.create_task(self._serve(place, group), name=f"read {place[0]}/{place[1]}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave(self, place: Place, request: WaitingRequest) -> None:
        """Remove a request; a read that other requests share goes on."""
        group = self._groups.get(place)
        if group is not None:
            group.requests.discard(request)
            if not group.requests and group.watch is not None:
                group.watch.wake()

    def close(self) -> None:
        """Answer all waiting requests with the current state."""
        self._is_closing = True
        for group in self._groups.values():
            if group.watch is not None:
                group.watch.wake()

    async def _serve(self, place: Place, group: _Group) -> None:
        try:
            async with self._news.watch([f"{place[0]}/{place[1]}"]) as group.watch:
                while group.requests:
                    answer = await self._read(*place)
                    group.respond(answer, to_all=answer.is_settled or self._is_closing)
                    if group.requests:
                        await group.watch.news(group.until_deadline_s())
                self._remove(place, group)  # before the next await, so that a new request starts a new group
        except Exception as error:  # any error: the application reports it to each request
            log.debug("http.diverted", subject=f"{place[0]}/{place[1]}", error=str(error) or type(error).__name__)
            self._remove(place, group)
            for each in list(group.requests):
                each.decline()

    def _remove(self, place: Place, group: _Group) -> None:
        if self._groups.get(place) is group:
            del self._groups[place]
