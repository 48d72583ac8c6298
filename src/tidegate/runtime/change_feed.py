"""Tells everybody who watches something that it moved, in whatever process the move was made.

One entry in a stream says what moved, and nothing more: whoever wants to know how it stands now looks for himself. So
an entry that is lost costs a late look and never a wrong one. A process has one reader, which blocks on the server,
runs only while somebody watches or follows, and wakes those who watch what was named. A watcher that is slow misses
nothing: news that came while it was busy is one reason to look, however often it came.
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
from tidegate.primitives.stream.message import Entry
from tidegate.primitives.stream.readers import BlockingReader, PausingReader, Reader
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs, only_our_cancellation
from tidegate.storage.valkey import Key, Valkey

log = get_logger(__name__)

T = TypeVar("T", int, str)

_KEPT = 1000
"""Entries that the server keeps, about: more than any reader falls behind between two reads."""
_TELL_WITHIN_S = 2.0
_LISTEN_S = 60.0
"""How long one blocking read lasts; after each in vain, the reader makes sure that it is where the stream is."""
_AT_ONCE = 500


class Watch:
    """One watcher's side."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def wake(self) -> None:
        """There is something to look at."""
        self._news.set()

    async def news(self, within_s: float) -> bool:
        """Wait until there is a reason to look, or `within_s` seconds passed (False).

        A reason is not a change: after a broken connection everybody is given one.
        """
        require_positive("within_s", within_s)
        came = await occurs(self._news, within_s=within_s)
        self._news.clear()
        return came


class _Follower(Generic[T]):
    """One who hears of everything."""

    def __init__(self, hear: Callable[[Collection[T] | None], None], gap_s: float) -> None:
        self.hear, self.gap_s = hear, gap_s


class ChangeFeed(Generic[T]):
    """One board: many tell, in any process; many watch, with one reader for each process."""

    def __init__(self, valkey: Valkey, key: Key, kind: type[T], *, field: bytes, gap: timedelta) -> None:
        """What moves is named by values of `kind`, and written in the entries' `field`; `gap` is the least time
        between two entries of this process."""
        self._valkey, self._key = valkey, key
        self._kind, self._field, self._gap_s = kind, field, gap.total_seconds()
        self._untold: set[T] = set()
        self._telling: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._watches: defaultdict[T, set[Watch]] = defaultdict(set)
        self._followers: list[_Follower[T]] = []
        self._hurry = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._position = ""
        self._untellable = Outage("bulletin.tell")
        self.is_cut_off = False
        """Whether the connection of our reader broke, and is not back: the first to know that the server is away."""

    @property
    def is_reading(self) -> bool:
        """Whether somebody in this process watches or follows."""
        return self._reading is not None

    def watchers_of(self, name: T) -> int:
        """How many in this process watch it."""
        return len(self._watches.get(name, ()))

    def wake(self, names: Iterable[T] | None = None) -> None:
        """Have those in this process look again who watch one of these, or anything: not since it moved."""
        for name in list(self._watches) if names is None else names:
            _wake(self._watches.get(name, ()))

    def moved(self, names: Iterable[T]) -> None:
        """Have it told that these moved, now or in a moment; returns at once.

        However often it is called, one command is under way at a time, and there is a gap between two.
        """
        self._untold.update(names)
        if self._untold and self._telling is None:
            self._telling = asyncio.create_task(self._tell_all(), name="tell the bulletin")

    async def close(self) -> None:
        """Tell what is left to tell. Whoever watches ends by himself."""
        self._closing.set()
        if self._telling is not None:
            await self._telling

    async def tell(self, names: Iterable[T]) -> None:
        """These moved. One command; if it fails that is logged, and nobody is the worse for it."""
        moved = sorted(set(names))
        if not moved:
            return
        try:
            async with asyncio.timeout(_TELL_WITHIN_S):
                packed = msgspec.msgpack.encode(moved)
                await self._valkey.execute("XADD", self._key, "MAXLEN", "~", _KEPT, "*", self._field, packed)
        except Unavailable as error:
            self._untellable.note(error)
        except TimeoutError:
            self._untellable.note(ValkeyUnavailable("no answer in time", server=self._valkey.address))
        else:
            self._untellable.over()

    async def _tell_all(self) -> None:
        try:
            while self._untold:
                moved, self._untold = self._untold, set[T]()
                await self.tell(moved)
                await occurs(self._closing, within_s=self._gap_s)  # what moves meanwhile is told together
        finally:
            self._telling = None

    @asynccontextmanager
    async def watch(self, names: Iterable[T]) -> AsyncGenerator[Watch]:
        """Be woken whenever one of these moves, for the length of a block.

        Look at them once inside the block, and then after each `news`: so nothing is missed.
        """
        watched, watch = frozenset(names), Watch()
        if not watched:
            raise InvalidArgument("names", [], "there is nothing to watch")
        for name in watched:
            self._watches[name].add(watch)
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
        self, hear: Callable[[Collection[T] | None], None], *, gap: timedelta = timedelta(0)
    ) -> AsyncGenerator[None]:
        """Hear of everything that moves, for the length of a block, before those who watch it are woken.

        `hear` is called with what moved, or with None: something may have moved and not have been heard of. With a
        `gap` it need not hear of a move sooner than that after the one before; where nobody is in more of a hurry,
        what moved meanwhile is then read together.
        """
        follower = _Follower(hear, gap.total_seconds())
        self._followers.append(follower)
        self._begin_to_read()
        try:
            yield
        finally:
            self._followers.remove(follower)
            await self._end_reading()

    def _begin_to_read(self) -> None:
        self._hurry.set()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="read the bulletin")

    async def _end_reading(self) -> None:
        if not self._watches and not self._followers and self._reading is not None:
            reading, self._reading = self._reading, None
            await end(reading)

    async def _read(self) -> None:
        """Follow the stream until cancelled, whatever happens to the connection."""
        reader: Reader = (BlockingReader if self._valkey.info.can_block else PausingReader)(self._fetch)
        failures, outage = 0, Outage("bulletin.read")
        while True:
            try:
                with only_our_cancellation():
                    await self._catch_up()
                    failures, self.is_cut_off = 0, False
                    outage.over()
                    while entries := await reader.wait(_AT_ONCE, _LISTEN_S):
                        self._spread(entries)
                        await self._rest(len(entries))
            except Exception as error:  # watchers wait for news, whatever the error is
                self.is_cut_off = True
                failures, self._position = failures + 1, ""  # watchers are woken when the server is back
                if isinstance(error, Unavailable):
                    await outage.pause(error, failures)
                else:
                    log.warning("bulletin.read_failed", tries=failures, exc_info=error)
                    await asyncio.sleep(DEFECT_PAUSES.delay(failures).total_seconds())

    async def _rest(self, entries: int) -> None:
        """Leave the server alone for a while, where everybody here is patient; whoever comes now is not kept."""
        self._hurry.clear()
        gap_s = 0.0 if self._watches else min((follower.gap_s for follower in self._followers), default=0.0)
        if gap_s and entries < _AT_ONCE:
            await occurs(self._hurry, within_s=gap_s)

    async def _catch_up(self) -> None:
        """Go to the end of the stream. Where it is not where we were, all may have missed something, and are woken.

        So they are at the start, after a broken connection, and when the server lost its data and began anew.
        """
        newest = await self._valkey.execute("XREVRANGE", self._key, "+", "-", "COUNT", 1)
        position = newest[0][0].decode() if newest else "0-0"
        if position != self._position:
            self._position = position
            self._tell_followers(None)
            for watches in list(self._watches.values()):
                _wake(watches)

    def _spread(self, entries: list[Entry]) -> None:
        self._position = entries[-1][0].decode()
        moved = {name for _, fields in entries for name in self._decode(fields[self._field])}
        self._tell_followers(moved)
        for name in moved & self._watches.keys():
            _wake(self._watches[name])

    def _decode(self, packed: bytes) -> list[T]:
        return msgspec.msgpack.decode(packed, type=list[self._kind])

    def _tell_followers(self, moved: Collection[T] | None) -> None:
        for follower in list(self._followers):
            follower.hear(moved)

    async def _fetch(self, count: int, block_ms: int | None) -> list[Entry]:
        block = () if block_ms is None else ("BLOCK", block_ms)
        reply = await self._valkey.execute_blocking(
            "XREAD", "COUNT", count, *block, "STREAMS", self._key, self._position, within_s=(block_ms or 0) / 1000
        )
        return reply[self._key.encode()] if reply else []


def _wake(watches: Iterable[Watch]) -> None:
    for watch in watches:
        watch.wake()
