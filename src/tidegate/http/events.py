"""Server-sent events: answers that last. Here is what all of them do alike, and a run's progress as it is made.

Each event is the whole state, so none has to be sent twice: a client that lost the connection is shown how things
stand. A client that leaves is noticed at once, also in the middle of a silence, and nothing of it stays behind.
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
"""The id of the last event. A client that comes back with it wants nothing more, and is told to stop asking."""
HEARTBEAT_S = 15.0
"""A comment after so much silence, for whoever stands between and takes silence for death."""
_RECONNECT_MS = 2000
_NOTHING_NEW = b": nothing new\n\n"


class EventResponse(Response[bytes]):
    """An answer whose body is sent bit by bit, until there is nothing more to tell or the client leaves."""

    def __init__(self) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(b"", status_code=200, media_type=MEDIA_TYPE, headers=headers)

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """The response itself is the ASGI application that sends it."""
        return self

    @abstractmethod
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""

    def start(self) -> Message:
        """The head of the answer."""
        headers = {"content-type": f"{MEDIA_TYPE}; charset=utf-8", **self.headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": pairs}

    async def stream(self, scope: Scope, receive: Receive, send: Send, events: Coroutine[Any, Any, None]) -> None:
        """Send all `events`, or, where only the head was asked for, none."""
        try:
            await send(self.start())
            if not is_for_head(scope):
                await send(chunk(f"retry: {_RECONNECT_MS}\n\n".encode()))
                await while_connected(events, receive)
            await send(chunk(b"", more=False))
        finally:
            events.close()


class EventStream(EventResponse):
    """What a listener is shown. Raises `TooManyWaiting` before it begins, where too many listen."""

    def __init__(self, listening: AbstractAsyncContextManager[Listener], *, heartbeat_s: float = HEARTBEAT_S) -> None:
        super().__init__()
        self._listening, self._heartbeat_s = listening, heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the last was shown, the client is gone, or the server stops."""
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
    """What is known of something, and again whenever it changed; it ends with the client, or when `closing` is set."""

    def __init__(
        self, closing: asyncio.Event, count: Callable[[int], None], *, heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        """`count` is told of each that begins and ends."""
        super().__init__()
        self._closing, self._count, self._heartbeat_s = closing, count, heartbeat_s
        self.is_over = False
        """Set by whoever knows that the last event was told."""

    @abstractmethod
    def watch(self) -> AbstractAsyncContextManager[Watch]:
        """Be woken when there may be something to tell."""

    @abstractmethod
    async def look(self) -> bytes | None:
        """The event to be told now; None: nothing that was not told before."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is nothing more to tell, or nobody listens."""
        self._count(1)
        try:
            await self.stream(scope, receive, send, self._send_all(send))
        finally:
            self._count(-1)

    async def _send_all(self, send: Send) -> None:
        async with self.watch() as watch:
            while not self._closing.is_set():
                try:
                    event = await self.look()
                except (Unavailable, TimeoutError):
                    event = None  # whoever listens has what was shown before
                if event is not None:
                    await send(chunk(event))
                if self.is_over:
                    return
                came = await unless(self._closing, watch.news(self._heartbeat_s))
                if not came and not self._closing.is_set():
                    await send(chunk(_NOTHING_NEW))


async def while_connected(sending: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Send to the end, unless the client leaves before."""
    tasks = [asyncio.create_task(sending, name="send events"), asyncio.create_task(gone(receive), name="client")]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        await end(*tasks)


async def gone(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def chunk(body: bytes, *, more: bool = True) -> Message:
    """A piece of an answer's body."""
    return {"type": "http.response.body", "body": body, "more_body": more}
