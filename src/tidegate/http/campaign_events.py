"""Server-sent events of one entry: how far it is, and again whenever something became of it, until it is decided."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from tidegate.http.events import ENDED, HEARTBEAT_S, WatchedEvents
from tidegate.runtime.change_feed import Watch
from tidegate.systems.campaigns.campaign import Result
from tidegate.systems.campaigns.campaigns import Campaigns


class EntryEvents(WatchedEvents):
    """The answer; it lasts until the entry is decided, the client leaves, or `closing` is set."""

    def __init__(
        self,
        campaigns: Campaigns,
        place: tuple[str, str],
        closing: asyncio.Event,
        count: Callable[[int], None],
        *,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        super().__init__(closing, count, heartbeat_s=heartbeat_s)
        self._campaigns, self._place = campaigns, place
        self._shown: Result | None = None

    def watch(self) -> AbstractAsyncContextManager[Watch]:
        """See `WatchedEvents`."""
        return self._campaigns.watch(*self._place)

    async def look(self) -> bytes | None:
        """See `WatchedEvents`."""
        result = await self._campaigns.result(*self._place)
        if result == self._shown:
            return None
        self._shown, self.is_over = result, result.is_final
        return _event(result)


def _event(result: Result) -> bytes:
    name = ENDED.encode() if result.is_final else result.state.value.encode()
    return b"id: %b\nevent: result\ndata: %b\n\n" % (name, msgspec.json.encode(result))
