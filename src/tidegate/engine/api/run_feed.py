"""Live progress of runs (server-sent events). A run is read once for all its listeners, and only after it changed.

Each run with listeners has one follower task. It waits for an entry of the change feed, reads the run and passes the
result to every listener. A slow listener receives the latest state and misses the states in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import NotFound, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.api.run_details import RunDetail
from tidegate.engine.change_feed import RunChangeFeed, Watch
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.http.channel import Channel, ChannelState, Listener, ListenerLimit
from tidegate.http.events import ENDED
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end

log = get_logger(__name__)

_CALM_AFTER_S = 1.0
"""A run is read once more when it has not changed for this long: the gate knows what it waits for only a moment after
its last change."""
_RETRIES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=10))


class RunFeed:
    """The runs that clients of this process follow."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[RunDetail]],
        change_feed: RunChangeFeed,
        seats: ListenerLimit,
        *,
        gap: timedelta = timedelta(milliseconds=200),
        longest_silence: timedelta = timedelta(minutes=1),
    ) -> None:
        """`gap` is the minimum time between two reads of a run.

        A run without a change for `longest_silence` is read anyway, because entries of the change feed can be lost.
        """
        self._read, self._change_feed, self._longest_silence_s = read, change_feed, longest_silence.total_seconds()
        self._seats, self._gap_ms = seats, gap.total_seconds() * 1000
        self._channels: dict[int, Channel] = {}
        self._closing = asyncio.Event()
        self._outage = Outage("http.feed")

    @asynccontextmanager
    async def listen(self, run_id: int) -> AsyncGenerator[Listener]:
        """Follow a run: receive its current state and each change. Raises `TooManyWaiting` if there are too many."""
        with self._seats.taken():
            channel = self._channels.get(run_id)
            if channel is None:
                channel = self._channels[run_id] = Channel()
                channel.following = asyncio.create_task(self._follow(run_id, channel), name=f"follow run {run_id}")
            listener = Listener([channel], self._closing)
            try:
                yield listener
            finally:
                listener.leave()
                if not channel.listeners:
                    await self._forget(run_id, channel)

    def close(self) -> None:
        """End the streams of all listeners."""
        self._closing.set()
        for channel in self._channels.values():
            channel.wake()

    async def _forget(self, run_id: int, channel: Channel) -> None:
        # A later listener may have opened a new channel for the same run.
        if self._channels.get(run_id) is channel:
            del self._channels[run_id]
        if channel.following is not None:
            await end(channel.following)

    async def _follow(self, run_id: int, channel: Channel) -> None:
        """Publish the changes of a run until it ends. A listener that comes later opens a new channel."""
        try:
            async with self._change_feed.watch([run_id]) as watch:
                await self._show_all(run_id, channel, watch)
        except NotFound:  # the run was removed while it was followed
            pass
        except Exception as error:  # a defect: the streams end, and clients may connect again
            log.error("http.feed_failed", run=run_id, exc_info=error)
        finally:
            channel.has_ended = True
            if self._channels.get(run_id) is channel:
                del self._channels[run_id]
            channel.wake()

    async def _show_all(self, run_id: int, channel: Channel, watch: Watch) -> None:
        number, failures, shown, is_calm = 0, 0, b"", False
        while True:
            began_ms = monotonic_ms()
            try:
                detail = await self._read(run_id)
            except Unavailable as error:
                failures += 1
                await self._outage.pause(error, failures)
                continue
            self._outage.over()
            failures, number = 0, number + 1
            is_last, body = detail.status not in ACTIVE_RUNS, msgspec.json.encode(detail)
            # Many changes of a run do not change what is shown.
            if body != shown:
                channel.show(_snapshot(number, body, is_last=is_last))
                shown = body
            if is_last:
                return
            # The gap counts from the start of the read.
            await asyncio.sleep(max(0.0, self._gap_ms - (monotonic_ms() - began_ms)) / 1000)
            is_calm = not await watch.news(self._longest_silence_s if is_calm else _CALM_AFTER_S)


def _snapshot(number: int, body: bytes, *, is_last: bool) -> ChannelState:
    if is_last:
        return ChannelState.of(number, body, ENDED, is_last=True, ident=ENDED)
    return ChannelState.of(number, body, "progress")
