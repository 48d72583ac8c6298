"""Requests that cannot be answered at once wait here: for a read from the server, or, with `?wait=`, for a refresh.

All requests for one subject share one task, which reads once for all of them. When the read fails, the requests are
passed on to the application, which reports each error.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.change_feed import Watch
from tidegate.systems.snapshots.cache import CacheKey, RefreshFeed
from tidegate.systems.snapshots.reads import SnapshotAnswer

log = get_logger(__name__)

_SHORTEST_WAIT_S = 0.001

Read = Callable[[str, str], Awaitable[SnapshotAnswer]]
Waiting = asyncio.Future[SnapshotAnswer]


class ReadFailed(Exception):
    """The snapshot could not be read; the application reports why."""


class _Group:
    """The requests for one subject, each with its deadline on the monotonic clock."""

    def __init__(self) -> None:
        self.requests: dict[Waiting, float] = {}
        self.watch: Watch | None = None

    def respond(self, answer: SnapshotAnswer, *, to_all: bool) -> None:
        """Answer all requests, or only those after their deadline."""
        now = time.monotonic()
        for request, deadline in list(self.requests.items()):
            if (to_all or deadline <= now) and not request.done():
                request.set_result(answer)

    def until_deadline_s(self) -> float:
        """Seconds until the first deadline."""
        return max(_SHORTEST_WAIT_S, min(self.requests.values()) - time.monotonic())

    def remove(self, request: Waiting) -> None:
        """Remove an answered or cancelled request; without requests, waiting ends."""
        self.requests.pop(request, None)
        if not self.requests and self.watch is not None:
            self.watch.wake()


class ReadCoalescer:
    """All waiting requests of this process."""

    def __init__(self, read: Read, news: RefreshFeed) -> None:
        self._read, self._news = read, news
        self._groups: dict[CacheKey, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def __len__(self) -> int:
        return sum(len(group.requests) for group in self._groups.values())

    def join(self, place: CacheKey, *, deadline: float) -> Waiting:
        """Read a subject for a request, together with others that wait for it already.

        The answer comes at once unless a refresh is queued, and then when the refresh is done or at the `deadline`.
        Cancel the future when the client leaves; a read that other requests share goes on. Raises `ReadFailed`.
        """
        request: Waiting = asyncio.get_running_loop().create_future()
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group()
            task = asyncio.create_task(self._serve(place, group), name=f"read {place[0]}/{place[1]}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # The running task sleeps until the deadlines it knows. Woken up, it reads again and includes this request.
        elif group.watch is not None:
            group.watch.wake()
        group.requests[request] = deadline
        request.add_done_callback(group.remove)
        return request

    def close(self) -> None:
        """Answer all waiting requests with the current state."""
        self._is_closing = True
        for group in self._groups.values():
            if group.watch is not None:
                group.watch.wake()

    async def _serve(self, place: CacheKey, group: _Group) -> None:
        try:
            # Subscribe before the first read: a refresh that is announced between read and wait is not missed.
            async with self._news.watch([f"{place[0]}/{place[1]}"]) as group.watch:
                while group.requests:
                    answer = await self._read(*place)
                    group.respond(answer, to_all=answer.is_settled or self._is_closing)
                    group.requests = {request: due for request, due in group.requests.items() if not request.done()}
                    if group.requests:
                        await group.watch.news(group.until_deadline_s())
                self._remove(place, group)  # before the next await, so that a new request starts a new group
        except Exception as error:  # any error: the application reports it to each request
            log.debug("http.diverted", subject=f"{place[0]}/{place[1]}", error=str(error) or type(error).__name__)
            self._remove(place, group)
            for request in list(group.requests):
                if not request.done():
                    request.set_exception(ReadFailed())

    def _remove(self, place: CacheKey, group: _Group) -> None:
        # After `_remove`, a new request may have started another group for the same subject.
        if self._groups.get(place) is group:
            del self._groups[place]
