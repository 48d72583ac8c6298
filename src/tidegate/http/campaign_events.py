"""Server-sent events of one entry: how far it is, and again whenever something became of it, until it is decided."""

import asyncio
from collections.abc import Callable

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidegate.campaigns.campaign import Result
from tidegate.campaigns.campaigns import Campaigns
from tidegate.http.events import ENDED, HEARTBEAT_S, MEDIA_TYPE, chunk, while_connected
from tidegate.kernel.errors import Unavailable
from tidegate.runtime.waiting import unless

_RECONNECT_MS = 2000


class EntryEvents(Response):
    """The answer; it lasts until the entry is decided, the client leaves, or `closing` is set."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        campaigns: Campaigns,
        place: tuple[str, str],
        closing: asyncio.Event,
        count: Callable[[int], None],
        *,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._campaigns, self._place = campaigns, place
        self._closing, self._count, self._heartbeat_s = closing, count, heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is nothing more to tell, or nobody listens."""
        self._count(1)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await while_connected(self._send_all(send), receive)
            await send(chunk(b"", more=False))
        finally:
            self._count(-1)

    async def _send_all(self, send: Send) -> None:
        campaign, user = self._place
        await send(chunk(f"retry: {_RECONNECT_MS}\n\n".encode()))
        shown: Result | None = None
        async with self._campaigns.watch(campaign, user) as watch:
            while not self._closing.is_set():
                try:
                    result = await self._campaigns.result(campaign, user)
                except (Unavailable, TimeoutError):
                    result = shown  # whoever listens has what was shown before
                if result is not None and result != shown:
                    shown = result
                    await send(chunk(_event(result)))
                    if result.is_final:
                        return
                came = await unless(self._closing, watch.news(self._heartbeat_s))
                if not came and not self._closing.is_set():
                    await send(chunk(b": nothing new\n\n"))


def _event(result: Result) -> bytes:
    name = ENDED.encode() if result.is_final else result.state.value.encode()
    return b"id: %b\nevent: result\ndata: %b\n\n" % (name, msgspec.json.encode(result))
