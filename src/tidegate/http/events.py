"""Server-sent events: base classes of answers that stay open.

Each event is the whole state, so no event has to be sent again after a reconnect: the client gets the current state. A
disconnect is detected at once, also while there are no events.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Response

from tidegate.core.errors import Unavailable
from tidegate.http.asgi import Message, Receive, Scope, Send, is_for_head
from tidegate.http.channel import Listener
from tidegate.runtime.change_feed import Watch
from tidegate.runtime.waiting import end, unless

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
    async def look(self) -> bytes | None:
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
                    event = await self.look()
                except (Unavailable, TimeoutError):
                    event = None  # the client keeps the previous state
                if event is not None:
                    await send(chunk(event))
                if self.is_over:
                    return
                came = await unless(self._closing, watch.news(self._heartbeat_s))
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
