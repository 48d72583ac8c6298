"""Notifies watchers in all processes that something changed.

An entry of the stream names what changed and nothing more; watchers read the new state themselves. So a lost entry
delays a read, but never makes it wrong. Each process has one reader, which blocks on the server, runs only while
there are watchers or followers, and wakes the watchers of what was named. A slow watcher misses nothing: any number of
changes that arrive while it is busy become one wake-up.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Generic, TypeVar

import msgspec

from tidegate.core.arguments import require_positive
from tidegate.core.backoff import DEFECT_PAUSES
from tidegate.core.errors import InvalidArgument, Unavailable, ValkeyUnavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.stream.consumer import BlockingReader, PausingReader, Reader
from tidegate.primitives.stream.message import Entry
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs, only_our_cancellation
from tidegate.storage.valkey import Key, Valkey

log = get_logger(__name__)

T = TypeVar("T", int, str)

_KEPT = 1000
"""Approximate number of entries that the server keeps: more than a reader falls behind between two reads."""
_PUBLISH_WITHIN_S = 2.0
_LISTEN_S = 60.0
"""Duration of one blocking read. After a read without a result, the reader checks its position in the stream."""
_AT_ONCE = 500


class Watch:
    """Wake-ups of one watcher; see `ChangeFeed.watch`."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """End the current or next wait of the watcher."""
        self._changed.set()

    async def wait(self, within_s: float) -> bool:
        """Wait until something may have changed. Returns False if `within_s` seconds passed without a wake-up.

        After a broken connection all watchers are woken, because changes may have been missed.
        """
        require_positive("within_s", within_s)
        came = await occurs(self._changed, within_s=within_s)
        self._changed.clear()
        return came


class _Follower(Generic[T]):
    """A callback that receives all changes."""

    def __init__(self, on_change: Callable[[Collection[T] | None], None], gap_s: float) -> None:
        self.on_change, self.gap_s = on_change, gap_s


class ChangeFeed(Generic[T]):
    """One feed of changes: any process publishes and watches; each process has one reader."""

    def __init__(self, valkey: Valkey, key: Key, kind: type[T], *, field: bytes, gap: timedelta) -> None:
        """Changed things are named by values of type `kind`, stored in `field` of the entries.

        `gap` is the minimum time between two entries of this process.
        """
        self._valkey, self._key = valkey, key
        self._kind, self._field, self._gap_s = kind, field, gap.total_seconds()
        self._unpublished: set[T] = set()
        self._publishing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._watches: defaultdict[T, set[Watch]] = defaultdict(set)
        self._followers: list[_Follower[T]] = []
        self._flush_now = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._position = ""
        self._publish_outage = Outage("change_feed.publish")
        self.is_cut_off = False
        """Whether the connection of the reader is broken. It blocks on the server, so it is the first to notice."""

    @property
    def is_reading(self) -> bool:
        """Whether there are watchers or followers in this process."""
        return self._reading is not None

    def watchers_of(self, name: T) -> int:
        """Number of watchers of `name` in this process."""
        return len(self._watches.get(name, ()))

    def wake(self, names: Iterable[T] | None = None) -> None:
        """Wake the watchers of `names` in this process, or all of them, although nothing changed."""
        for name in list(self._watches) if names is None else names:
            _wake(self._watches.get(name, ()))

    def moved(self, names: Iterable[T]) -> None:
        """Publish soon that `names` changed; returns at once.

        However often it is called, one command is under way at a time, with a gap between two.
        """
        self._unpublished.update(names)
        if self._unpublished and self._publishing is None:
            self._publishing = asyncio.create_task(self._publish_all(), name="publish changes")

    async def close(self) -> None:
        """Publish what is left. Watchers and followers end on their own."""
        self._closing.set()
        if self._publishing is not None:
            await self._publishing

    async def tell(self, names: Iterable[T]) -> None:
        """Publish now that `names` changed, with one command. A failure is logged: watchers then read late."""
        moved = sorted(set(names))
        if not moved:
            return
        try:
            async with asyncio.timeout(_PUBLISH_WITHIN_S):
                packed = msgspec.msgpack.encode(moved)
                await self._valkey.execute("XADD", self._key, "MAXLEN", "~", _KEPT, "*", self._field, packed)
        except Unavailable as error:
            self._publish_outage.note(error)
        except TimeoutError:
            self._publish_outage.note(ValkeyUnavailable("no answer in time", server=self._valkey.address))
        else:
            self._publish_outage.over()

    async def _publish_all(self) -> None:
        try:
            while self._unpublished:
                # Exchanged before the await: names that are added meanwhile are published next.
                moved, self._unpublished = self._unpublished, set[T]()
                await self.tell(moved)
                await occurs(self._closing, within_s=self._gap_s)  # changes of this time are published together
        finally:
            self._publishing = None

    @asynccontextmanager
    async def watch(self, names: Iterable[T]) -> AsyncGenerator[Watch]:
        """Watch `names` for the length of a block.

        Read their state once inside the block and then after each `wait`, so that no change is missed.
        """
        watched, watch = frozenset(names), Watch()
        if not watched:
            raise InvalidArgument("names", [], "there is nothing to watch")
        for name in watched:
            self._watches[name].add(watch)
        # After the registration, so that the first entry that is read finds the watcher.
        self._begin_to_read()
        try:
            yield watch
        finally:
            for name in watched:
                self._watches[name].discard(watch)
                if not self._watches[name]:
                    del self._watches[name]
            await self._end_reading()

    @asynccontextmanager
    async def follow(
        self, on_change: Callable[[Collection[T] | None], None], *, gap: timedelta = timedelta(0)
    ) -> AsyncGenerator[None]:
        """Call `on_change` with all changes, for the length of a block, before watchers are woken.

        `on_change` receives what changed, or None when changes may have been missed. With a `gap`, the follower accepts
        that changes arrive that much later; the reader then reads them together if no other reader needs them sooner.
        """
        follower = _Follower(on_change, gap.total_seconds())
        self._followers.append(follower)
        self._begin_to_read()
        try:
            yield
        finally:
            self._followers.remove(follower)
            await self._end_reading()

    def _begin_to_read(self) -> None:
        self._flush_now.set()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="read changes")

    async def _end_reading(self) -> None:
        if not self._watches and not self._followers and self._reading is not None:
            # Reset before the await: a watcher that begins meanwhile starts a reader of its own.
            reading, self._reading = self._reading, None
            await end(reading)

    async def _read(self) -> None:
        """Read the stream until cancelled, through any failures of the connection."""
        reader: Reader = (BlockingReader if self._valkey.info.can_block else PausingReader)(self._fetch)
        failures, outage = 0, Outage("change_feed.read")
        while True:
            try:
                with only_our_cancellation():
                    await self._catch_up()
                    failures, self.is_cut_off = 0, False
                    outage.over()
                    while entries := await reader.wait(_AT_ONCE, _LISTEN_S):
                        self._spread(entries)
                        # Entries that arrive during the pause are read together.
                        await self._rest(len(entries))
            except Exception as error:  # the reader must survive any error: watchers depend on it
                self.is_cut_off = True
                failures, self._position = failures + 1, ""  # all watchers are woken when the server is back
                if isinstance(error, Unavailable):
                    await outage.pause(error, failures)
                else:
                    log.warning("change_feed.read_failed", tries=failures, exc_info=error)
                    await asyncio.sleep(DEFECT_PAUSES.delay(failures).total_seconds())

    async def _rest(self, entries: int) -> None:
        """Pause between two reads if all followers accept it. A new watcher ends the pause."""
        self._flush_now.clear()
        gap_s = 0.0 if self._watches else min((follower.gap_s for follower in self._followers), default=0.0)
        if gap_s and entries < _AT_ONCE:
            await occurs(self._flush_now, within_s=gap_s)

    async def _catch_up(self) -> None:
        """Move to the end of the stream. If the position differs from the last one, wake all watchers.

        This happens at the start, after a broken connection, and after the server lost its data.
        """
        newest = await self._valkey.execute("XREVRANGE", self._key, "+", "-", "COUNT", 1)
        position = newest[0][0].decode() if newest else "0-0"
        if position != self._position:
            self._position = position
            self._notify_followers(None)
            for watches in list(self._watches.values()):
                _wake(watches)

    def _spread(self, entries: list[Entry]) -> None:
        self._position = entries[-1][0].decode()
        moved = {name for _, fields in entries for name in self._decode(fields[self._field])}
        # Before the watchers: a follower may keep a cache that a woken watcher reads.
        self._notify_followers(moved)
        for name in moved & self._watches.keys():
            _wake(self._watches[name])

    def _decode(self, packed: bytes) -> list[T]:
        return msgspec.msgpack.decode(packed, type=list[self._kind])

    def _notify_followers(self, moved: Collection[T] | None) -> None:
        for follower in list(self._followers):
            follower.on_change(moved)

    async def _fetch(self, count: int, block_ms: int | None) -> list[Entry]:
        block = () if block_ms is None else ("BLOCK", block_ms)
        reply = await self._valkey.execute_blocking(
            "XREAD", "COUNT", count, *block, "STREAMS", self._key, self._position, within_s=(block_ms or 0) / 1000
        )
        return reply[self._key.encode()] if reply else []


def _wake(watches: Iterable[Watch]) -> None:
    for watch in watches:
        watch.wake()
