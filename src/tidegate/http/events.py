"""Server-sent events: a run's progress as it is made, over one answer that lasts until the run is over.

Each event is the whole state, so none has to be sent twice: a client that lost the connection is shown how things
stand. A client that leaves is noticed at once, also in the middle of a silence, and nothing of it stays behind.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tidegate.http.feed import Listener, RunFeed, Snapshot
from tidegate.runtime.waiting import end

MEDIA_TYPE = "text/event-stream"
ENDED = "ended"
"""The id of the last event. A client that comes back with it wants nothing more, and is told to stop asking."""
HEARTBEAT_S = 15.0
"""A comment after so much silence, for whoever stands between and takes silence for death."""
_RECONNECT_MS = 2000


class EventStream(Response):
    """The answer. Raises `TooManyWaiting` before it begins, where too many listen."""

    media_type = MEDIA_TYPE

    def __init__(self, feed: RunFeed, run_id: int, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._feed, self._run_id, self._heartbeat_s = feed, run_id, heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the run is over, the client is gone, or the server stops."""
        async with self._feed.listen(self._run_id) as listener:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await while_connected(self._send_all(listener, send), receive)
            await send(chunk(b"", more=False))

    async def _send_all(self, listener: Listener, send: Send) -> None:
        await send(chunk(f"retry: {_RECONNECT_MS}\n\n".encode()))
        while not listener.is_over:
            snapshot = await listener.next(self._heartbeat_s)
            if snapshot is not None:
                await send(chunk(_event(snapshot)))
                if snapshot.is_last:
                    return
            elif not listener.is_over:
                await send(chunk(b": nothing new\n\n"))


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


def _event(snapshot: Snapshot) -> bytes:
    kind, name = (ENDED, ENDED) if snapshot.is_last else ("progress", str(snapshot.number))
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (name.encode(), kind.encode(), snapshot.body)


def chunk(body: bytes, *, more: bool = True) -> Message:
    """A piece of an answer's body."""
    return {"type": "http.response.body", "body": body, "more_body": more}
