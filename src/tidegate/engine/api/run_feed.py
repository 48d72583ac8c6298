"""The progress of runs for those who listen: each run is read once for all of them, when it moved, and not before.

A run that somebody listens to has one follower, which waits for news of it on the bulletin, reads it, and shows what it
read to every listener. A listener that is slow is shown the latest when it is ready; what came between is left out.
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
from tidegate.engine.change_feed import ChangeFeed, Watch
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.http.channel import Channel, Listener, Seats, Snapshot
from tidegate.http.events import ENDED
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end

log = get_logger(__name__)

_CALM_AFTER_S = 1.0
"""A run that moves no more is looked at once again: what it waits for is known a moment after its last move."""
_RETRIES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=10))


class RunFeed:
    """All the runs that somebody in this process listens to."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[RunDetail]],
        bulletin: ChangeFeed,
        seats: Seats,
        *,
        gap: timedelta = timedelta(milliseconds=200),
        longest_silence: timedelta = timedelta(minutes=1),
    ) -> None:
        """`gap`: a run is read no more often than this, however often it moves.

        `longest_silence` is the second net: a run of which nothing was heard for so long is read all the same, since
        news can be lost.
        """
        self._read, self._bulletin, self._longest_silence_s = read, bulletin, longest_silence.total_seconds()
        self._seats, self._gap_ms = seats, gap.total_seconds() * 1000
        self._channels: dict[int, Channel] = {}
        self._closing = asyncio.Event()
        self._outage = Outage("http.feed")

    @asynccontextmanager
    async def listen(self, run_id: int) -> AsyncGenerator[Listener]:
        """Be shown a run as it stands and as it moves; raise `TooManyWaiting` where too many are."""
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
        """Nothing more is shown: everybody who listens is sent home."""
        self._closing.set()
        for channel in self._channels.values():
            channel.wake()

    async def _forget(self, run_id: int, channel: Channel) -> None:
        if self._channels.get(run_id) is channel:
            del self._channels[run_id]
        if channel.following is not None:
            await end(channel.following)

    async def _follow(self, run_id: int, channel: Channel) -> None:
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
            if body != shown:
                channel.show(_snapshot(number, body, is_last=is_last))
                shown = body
            if is_last:
                return
            await asyncio.sleep(max(0.0, self._gap_ms - (monotonic_ms() - began_ms)) / 1000)
            is_calm = not await watch.news(self._longest_silence_s if is_calm else _CALM_AFTER_S)


def _snapshot(number: int, body: bytes, *, is_last: bool) -> Snapshot:
    if is_last:
        return Snapshot.of(number, body, ENDED, is_last=True, ident=ENDED)
    return Snapshot.of(number, body, "progress")
