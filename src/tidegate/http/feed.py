"""The progress of runs for those who listen: each run is read once for all of them, when it moved, and not before.

A run that somebody listens to has one follower, which waits for news of it on the bulletin, reads it, and shows what it
read to every listener. A listener that is slow is shown the latest when it is ready; what came between is left out.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from tidegate.collect.bulletin import Bulletin, Watch
from tidegate.collect.lifecycle import ACTIVE_RUNS
from tidegate.http.views import RunDetail
from tidegate.kernel.backoff import Backoff
from tidegate.kernel.clock import monotonic_ms
from tidegate.kernel.errors import NotFound, TooManyWaiting, Unavailable
from tidegate.runtime.waiting import end, occurs
from tidegate.telemetry import metrics
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

_CALM_AFTER_S = 1.0
"""A run that moves no more is looked at once again: what it waits for is known a moment after its last move."""
_RETRIES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=10))


class Snapshot(msgspec.Struct, frozen=True):
    """A run as it was at one moment, ready to be sent."""

    number: int
    """Grows from one to the next."""
    is_last: bool
    body: bytes


class _Channel:
    """One run, its latest snapshot, and who listens."""

    def __init__(self) -> None:
        self.latest: Snapshot | None = None
        self.has_ended = False
        self.listeners: set[Listener] = set()
        self.following: asyncio.Task[None] | None = None

    def show(self, snapshot: Snapshot) -> None:
        self.latest = snapshot
        self.wake()

    def wake(self) -> None:
        for listener in self.listeners:
            listener.wake()


class Listener:
    """One who listens to a run."""

    def __init__(self, channel: _Channel, closing: asyncio.Event) -> None:
        self._channel, self._closing = channel, closing
        self._seen = -1
        self._news = asyncio.Event()
        self.wake()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come: the run is gone, or the server stops."""
        return self._closing.is_set() or (self._channel.has_ended and not self._is_behind)

    def wake(self) -> None:
        """There is something to see."""
        self._news.set()

    async def next(self, within_s: float) -> Snapshot | None:
        """The latest that was not seen yet; None when `within_s` seconds passed, or nothing more will come."""
        deadline = asyncio.get_running_loop().time() + within_s
        while not self._is_behind and not self.is_over:
            self._news.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or not await occurs(self._news, within_s=left_s):
                return None
        latest = self._channel.latest
        if latest is None or not self._is_behind or self._closing.is_set():
            return None
        self._seen = latest.number
        return latest

    @property
    def _is_behind(self) -> bool:
        return self._channel.latest is not None and self._channel.latest.number > self._seen


class RunFeed:
    """All the runs that somebody in this process listens to."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[RunDetail]],
        bulletin: Bulletin,
        *,
        most_listeners: int,
        gap: timedelta = timedelta(milliseconds=200),
        longest_silence: timedelta = timedelta(minutes=1),
    ) -> None:
        """`gap`: a run is read no more often than this, however often it moves.

        `longest_silence` is the second net: a run of which nothing was heard for so long is read all the same, since
        news can be lost.
        """
        self._read, self._bulletin, self._longest_silence_s = read, bulletin, longest_silence.total_seconds()
        self._most, self._gap_ms = most_listeners, gap.total_seconds() * 1000
        self._channels: dict[int, _Channel] = {}
        self._listeners = 0
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def listen(self, run_id: int) -> AsyncGenerator[Listener]:
        """Be shown a run as it stands and as it moves; raise `TooManyWaiting` where too many are."""
        if self._listeners >= self._most:
            raise TooManyWaiting("events", most=self._most)
        channel = self._channels.get(run_id)
        if channel is None:
            channel = self._channels[run_id] = _Channel()
            channel.following = asyncio.create_task(self._follow(run_id, channel), name=f"follow run {run_id}")
        listener = Listener(channel, self._closing)
        channel.listeners.add(listener)
        self._count(1)
        try:
            yield listener
        finally:
            self._count(-1)
            channel.listeners.discard(listener)
            if not channel.listeners:
                await self._forget(run_id, channel)

    def close(self) -> None:
        """Nothing more is shown: everybody who listens is sent home."""
        self._closing.set()
        for channel in self._channels.values():
            channel.wake()

    def _count(self, change: int) -> None:
        self._listeners += change
        metrics.HTTP_LISTENERS.set(self._listeners)

    async def _forget(self, run_id: int, channel: _Channel) -> None:
        if self._channels.get(run_id) is channel:
            del self._channels[run_id]
        if channel.following is not None:
            await end(channel.following)

    async def _follow(self, run_id: int, channel: _Channel) -> None:
        """Until the run is over; then whoever comes next finds a new channel."""
        try:
            async with self._bulletin.watch([run_id]) as watch:
                await self._show_all(run_id, channel, watch)
        except NotFound:  # it was removed while somebody listened
            pass
        except Exception as error:  # a defect: those who listen are sent home, and may come again
            log.error("http.feed_failed", run=run_id, exc_info=error)
        finally:
            channel.has_ended = True
            if self._channels.get(run_id) is channel:
                del self._channels[run_id]
            channel.wake()

    async def _show_all(self, run_id: int, channel: _Channel, watch: Watch) -> None:
        number, failures, shown, is_calm = 0, 0, b"", False
        while True:
            began_ms = monotonic_ms()
            try:
                detail = await self._read(run_id)
            except Unavailable as error:
                failures += 1
                log.warning("http.feed_failed", run=run_id, tries=failures, error=str(error))
                await asyncio.sleep(_RETRIES.delay(failures).total_seconds())
                continue
            failures, number = 0, number + 1
            is_last, body = detail.status not in ACTIVE_RUNS, msgspec.json.encode(detail)
            if body != shown:
                channel.show(Snapshot(number, is_last, body))
                shown = body
            if is_last:
                return
            await asyncio.sleep(max(0.0, self._gap_ms - (monotonic_ms() - began_ms)) / 1000)
            is_calm = not await watch.news(self._longest_silence_s if is_calm else _CALM_AFTER_S)
