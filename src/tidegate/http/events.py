"""Server-sent events: state that is read and encoded once, and sent to many listeners.

A channel has the latest snapshot of something. A listener follows one or more channels. A slow listener gets the latest
snapshot of each channel when it is ready; snapshots in between are skipped. Each event is the whole state, so no event
has to be sent again after a reconnect: the client gets the current state. A disconnect is detected at once, also while
there are no events.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import msgspec
from litestar import Response

from tidegate.core.errors import TooManyWaiting, Unavailable
from tidegate.core.telemetry import metrics
from tidegate.http.asgi import Message, Receive, Scope, Send, is_for_head
from tidegate.runtime.change_feed import Watch
from tidegate.runtime.waiting import end, occurs, unless


class ChannelState(msgspec.Struct, frozen=True):
    """An encoded state, ready to be sent."""

    number: int
    """Increases with each snapshot of the channel."""
    is_last: bool
    body: bytes
    event: bytes
    """The state as a server-sent event."""

    @classmethod
    def of(
        cls, number: int, body: bytes, kind: str, *, is_last: bool = False, ident: str | None = None
    ) -> "ChannelState":
        """A snapshot with an event of the type `kind`; `ident` is the id of the event, by default the number."""
        event_id = number if ident is None else ident
        return cls(number, is_last, body, f"id: {event_id}\nevent: {kind}\ndata: ".encode() + body + b"\n\n")


class Channel:
    """The latest snapshot of something, and its listeners."""

    def __init__(self) -> None:
        self.latest: ChannelState | None = None
        self.has_ended = False
        self.listeners: set[Listener] = set()
        self.following: asyncio.Task[None] | None = None
        """The task that reads the state and publishes snapshots while there are listeners."""

    def show(self, snapshot: ChannelState) -> None:
        """Publish a snapshot to all listeners."""
        self.latest = snapshot
        self.wake()

    def wake(self) -> None:
        """Wake all listeners: there is a new snapshot, or the channel has ended."""
        for listener in self.listeners:
            listener.wake()


class Listener:
    """Receives the latest snapshots of some channels."""

    def __init__(self, channels: Sequence[Channel], closing: asyncio.Event) -> None:
        """Join the channels; call `leave` when done."""
        self.channels, self._closing = tuple(channels), closing
        self._turns = deque(self.channels)
        # Below any number, so that a new listener gets the present state of each channel first.
        self._seen = dict.fromkeys(self.channels, -1)
        self._news = asyncio.Event()
        for channel in self.channels:
            channel.listeners.add(self)
        self.wake()

    @property
    def is_over(self) -> bool:
        """Whether no more snapshots follow: all channels have ended, or the server stops."""
        ended = all(channel.has_ended for channel in self.channels)
        return self._closing.is_set() or (ended and self._next() is None)

    def wake(self) -> None:
        """Wake `next`, because there may be a new snapshot."""
        self._news.set()

    def leave(self) -> None:
        """Leave all joined channels."""
        for channel in self.channels:
            channel.listeners.discard(self)

    async def next(self, within_s: float) -> ChannelState | None:
        """The next unseen snapshot; None after `within_s` seconds, or when no more follow."""
        deadline = asyncio.get_running_loop().time() + within_s
        while (channel := self._next()) is None and not self.is_over:
            # Cleared after the check and before the wait, without an await in between: no snapshot is missed.
            self._news.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or not await occurs(self._news, within_s=left_s):
                return None
        # The latest snapshot is read only now: those that came in between are skipped.
        if channel is None or channel.latest is None or self._closing.is_set():
            return None
        self._seen[channel] = channel.latest.number
        self._turns.remove(channel)
        self._turns.append(channel)  # round robin: a busy channel does not delay the others
        return channel.latest

    def _next(self) -> Channel | None:
        for channel in self._turns:
            if channel.latest is not None and channel.latest.number > self._seen[channel]:
                return channel
        return None


class ListenerLimit:
    """Limits the number of event streams that are open at once in this process."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0

    @contextmanager
    def taken(self) -> Generator[None]:
        """Occupy one stream for the length of a block. Raises `TooManyWaiting` if all are in use."""
        if self._taken >= self._most:
            raise TooManyWaiting("events", most=self._most)
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._taken += change
        metrics.HTTP_LISTENERS.set(self._taken)


MEDIA_TYPE = "text/event-stream"
ENDED = "ended"
"""The id of the last event. A client that reconnects with it gets 204, which stops its reconnects."""
HEARTBEAT_S = 15.0
"""Seconds without an event after which a comment is sent, so that proxies do not close the idle connection."""
_RECONNECT_MS = 2000
_NOTHING_NEW = b": nothing new\n\n"


class EventResponse(Response[bytes]):
    """An answer with a body that is sent in chunks until the last event or until the client disconnects."""

    def __init__(self) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(b"", status_code=200, media_type=MEDIA_TYPE, headers=headers)

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """The response itself is the ASGI application that sends it."""
        return self

    @abstractmethod
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer to the client."""

    def start(self) -> Message:
        """The head of the answer."""
        headers = {"content-type": f"{MEDIA_TYPE}; charset=utf-8", **self.headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": pairs}

    async def stream(self, scope: Scope, receive: Receive, send: Send, events: Coroutine[Any, Any, None]) -> None:
        """Send all `events`; none for a HEAD request."""
        try:
            await send(self.start())
            if not is_for_head(scope):
                await send(chunk(f"retry: {_RECONNECT_MS}\n\n".encode()))
                await while_connected(events, receive)
            await send(chunk(b"", more=False))
        finally:
            # A coroutine that was never started, as for a HEAD request, would log a warning.
            events.close()


class EventStream(EventResponse):
    """Sends the snapshots of a `Listener`. Raises `TooManyWaiting` before the head is sent."""

    def __init__(self, listening: AbstractAsyncContextManager[Listener], *, heartbeat_s: float = HEARTBEAT_S) -> None:
        super().__init__()
        self._listening, self._heartbeat_s = listening, heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the last snapshot, until the client disconnects, or until the server stops."""
        async with self._listening as listener:
            await self.stream(scope, receive, send, self._send_all(listener, send))

    async def _send_all(self, listener: Listener, send: Send) -> None:
        while not listener.is_over:
            snapshot = await listener.next(self._heartbeat_s)
            if snapshot is not None:
                await send(chunk(snapshot.event))
                if snapshot.is_last:
                    return
            elif not listener.is_over:
                await send(chunk(_NOTHING_NEW))


class WatchedEvents(EventResponse):
    """Sends a state, and sends it again after each change, until the client disconnects or `closing` is set."""

    def __init__(
        self, closing: asyncio.Event, count: Callable[[int], None], *, heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        """`count` is called with 1 at the start and with -1 at the end of the stream."""
        super().__init__()
        self._closing, self._count, self._heartbeat_s = closing, count, heartbeat_s
        self.is_over = False
        """Set by subclasses with the last event."""

    @abstractmethod
    def watch(self) -> AbstractAsyncContextManager[Watch]:
        """Subscribe to changes of the state."""

    @abstractmethod
    async def next_event(self) -> bytes | None:
        """Read the state. Returns the event to send, or None if nothing changed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the last event or until the client disconnects."""
        self._count(1)
        try:
            await self.stream(scope, receive, send, self._send_all(send))
        finally:
            self._count(-1)

    async def _send_all(self, send: Send) -> None:
        # Subscribe before the first read, so that no change in between is missed.
        async with self.watch() as watch:
            while not self._closing.is_set():
                try:
                    event = await self.next_event()
                except (Unavailable, TimeoutError):
                    event = None  # the client keeps the previous state
                if event is not None:
                    await send(chunk(event))
                if self.is_over:
                    return
                came = await unless(self._closing, watch.wait(self._heartbeat_s))
                if not came and not self._closing.is_set():
                    await send(chunk(_NOTHING_NEW))


async def while_connected(sending: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run `sending`; cancel it if the client disconnects."""
    tasks = [asyncio.create_task(sending, name="send events"), asyncio.create_task(gone(receive), name="client")]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # Raise the error of the sender; otherwise the client has left.
        if tasks[0].done():
            tasks[0].result()
    finally:
        await end(*tasks)


async def gone(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


def chunk(body: bytes, *, more: bool = True) -> Message:
    """An ASGI message with a part of the body."""
    return {"type": "http.response.body", "body": body, "more_body": more}
