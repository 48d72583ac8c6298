"""Server-sent events of one subject: what is known of it, and again whenever it was refreshed."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tidegate.http.events import WatchedEvents
from tidegate.runtime.change_feed import Watch
from tidegate.systems.snapshots.news import News
from tidegate.systems.snapshots.query import SnapshotAnswer, SnapshotReader


class SnapshotEvents(WatchedEvents):
    """The answer; it lasts until the client leaves, or `closing` is set."""

    def __init__(
        self,
        reader: SnapshotReader,
        news: News,
        place: tuple[str, str],
        closing: asyncio.Event,
        count: Callable[[int], None],
    ) -> None:
        super().__init__(closing, count)
        self._reader, self._news, self._place = reader, news, place
        self._shown: SnapshotAnswer | None = None

    def watch(self) -> AbstractAsyncContextManager[Watch]:
        """See `WatchedEvents`."""
        kind, key = self._place
        return self._news.watch([f"{kind}/{key}"])

    async def look(self) -> bytes | None:
        """See `WatchedEvents`."""
        answer = await self._reader.read(*self._place)
        if not answer.is_news_after(self._shown):
            return None
        self._shown = answer
        return _event(answer)


def _event(answer: SnapshotAnswer) -> bytes:
    return b"id: %d\nevent: snapshot\ndata: %b\n\n" % (answer.kept.version, answer.encode())
