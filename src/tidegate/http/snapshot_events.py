"""Server-sent events of one subject: what is known of it, and again whenever it was refreshed."""

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.http.events import HEARTBEAT_S, MEDIA_TYPE, chunk, while_connected
from tidegate.kernel.errors import Unavailable
from tidegate.runtime.bulletin import Watch
from tidegate.runtime.waiting import unless
from tidegate.snapshots.news import News
from tidegate.snapshots.query import SnapshotAnswer, SnapshotReader

_RECONNECT_MS = 2000


class SnapshotEvents(Response):
    """The answer; it lasts until the client leaves, or `closing` is set."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        reader: SnapshotReader,
        news: News,
        place: tuple[str, str],
        closing: asyncio.Event,
        count: Callable[[int], None],
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._reader, self._news, self._place = reader, news, place
        self._closing, self._count = closing, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until nobody listens."""
        self._count(1)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await while_connected(self._send_all(send), receive)
            await send(chunk(b"", more=False))
        finally:
            self._count(-1)

    async def _send_all(self, send: Send) -> None:
        kind, key = self._place
        await send(chunk(f"retry: {_RECONNECT_MS}\n\n".encode()))
        shown = None
        async with self._news.watch([f"{kind}/{key}"]) as watch:
            while not self._closing.is_set():
                try:
                    answer = await self._reader.read(kind, key)
                except (Unavailable, TimeoutError):
                    answer = None  # whoever listens has what was shown before
                if answer is not None and shown != answer.state:
                    shown = answer.state
                    await send(chunk(_event(answer)))
                if not await self._news_came(watch) and not self._closing.is_set():
                    await send(chunk(b": nothing new\n\n"))

    async def _news_came(self, watch: Watch) -> bool:
        return bool(await unless(self._closing, watch.news(HEARTBEAT_S)))


def _event(answer: SnapshotAnswer) -> bytes:
    return b"id: %d\nevent: snapshot\ndata: %b\n\n" % (answer.kept.version, answer.encode())
