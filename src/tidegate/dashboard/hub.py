"""Topics for those who watch: each is read once for all of them, and only while somebody watches.

A topic that somebody listens to has one follower. It reads when runs moved, where the topic is about them, and at the
latest after two seconds, since most things have no news of their own; never more often than once a second, and never
so often that it would be reading most of the time. What it read is encoded once, and shown where it has changed. A
server that hangs is told of, and what was read when it is back is shown soon after, however long it hung.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from tidegate.core.clock import monotonic_ms
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.change_feed import ChangeFeed
from tidegate.http.channel import Channel, Listener, Seats, Snapshot
from tidegate.http.problems import ProblemType, Trouble, to_trouble
from tidegate.runtime.waiting import end, occurs
from tidegate.system import Topic

log = get_logger(__name__)

PROBLEM = "problem"
"""The kind of the event that a topic cannot be told now."""
_NO_ANSWER = "a server that is needed does not answer in time"
_AT_MOST = 4
"""A topic rests for so many times as long as it took to read it: it takes a fifth of one reader, and no more."""
_WHILE_BUSY, _LONGEST_REST_S = 100, 3.0
"""Up to so many seconds it rests so many times as long: where others work, it costs them a hundredth."""
_NEVER_LONGER_S = 5.0
"""But no longer: where a read took that long somebody hung, and whoever watches waits for him to be back."""


class LiveProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a topic cannot be told now. It is tried again; the next event of the topic says that it is over."""

    topic: str
    type: str
    title: str
    status: int
    detail: str


class Hub:
    """All topics of this process, and who watches them."""

    def __init__(self, topics: Iterable[Topic], bulletin: ChangeFeed, seats: Seats) -> None:
        self._topics: Mapping[str, Topic] = {topic.name: topic for topic in topics}
        self._reads = {name: SharedRead(topic.read) for name, topic in self._topics.items()}
        self._bulletin, self._seats = bulletin, seats
        self._channels: dict[str, Channel] = {}
        self._closing = asyncio.Event()

    @property
    def names(self) -> Sequence[str]:
        """Names of all topics."""
        return list(self._topics)

    async def answer(self, name: str) -> bytes:
        """A topic as it is now, encoded; those who ask at once share a read. Raises what the read raises."""
        return await self._reads[name].next()

    @asynccontextmanager
    async def listen(self, names: Sequence[str]) -> AsyncGenerator[Listener]:
        """Be shown topics as they are and as they change; raise `TooManyWaiting` where too many are."""
        with self._seats.taken():
            listener = Listener([self._channel(name) for name in dict.fromkeys(names)], self._closing)
            try:
                yield listener
            finally:
                listener.leave()
                await self._forget_unheard()

    def close(self) -> None:
        """Nothing more is shown: everybody who listens is sent home."""
        self._closing.set()
        for channel in self._channels.values():
            channel.wake()

    def _channel(self, name: str) -> Channel:
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = Channel()
            channel.following = asyncio.create_task(self._follow(name, channel), name=f"follow topic {name}")
        return channel

    async def _forget_unheard(self) -> None:
        unheard = {name: channel for name, channel in self._channels.items() if not channel.listeners}
        for name in unheard:
            del self._channels[name]
        await end(*(channel.following for channel in unheard.values() if channel.following is not None))

    async def _follow(self, name: str, channel: Channel) -> None:
        """Until nobody listens any more."""
        topic, moved = self._topics[name], asyncio.Event()
        async with AsyncExitStack() as stack:
            if topic.heeds_runs:
                await stack.enter_async_context(self._bulletin.follow(lambda _: moved.set(), gap=topic.gap))
            number, shown = 0, (b"", "")
            while True:
                began_ms = monotonic_ms()
                moved.clear()
                body, kind = await self._look(name)
                if (told := (_beyond_its_time(body), kind)) != shown:
                    number, shown = number + 1, told
                    channel.show(Snapshot.of(number, body, kind, ident=f"{name}-{number}"))
                took_s = (monotonic_ms() - began_ms) / 1000
                rest_s = max(took_s * _AT_MOST, min(took_s * _WHILE_BUSY, _LONGEST_REST_S))
                gap_s = max(topic.gap.total_seconds() - took_s, min(rest_s, _NEVER_LONGER_S))
                await asyncio.sleep(gap_s)
                await occurs(moved, within_s=max(0.0, topic.silence.total_seconds() - took_s - gap_s))

    async def _look(self, name: str) -> tuple[bytes, str]:
        """The body of the next event, and its kind."""
        try:
            async with asyncio.timeout(self._topics[name].within.total_seconds()):
                return await self._reads[name].next(), name
        except TimeoutError:  # the read goes on, and the next one begins after it
            return _problem(name, Trouble(ProblemType.UNAVAILABLE, _NO_ANSWER)), PROBLEM
        except Exception as error:  # whatever it is, the other topics are shown
            trouble = to_trouble(error)
            if trouble is None:
                log.error("dashboard.look_failed", parts=name, exc_info=error)
                trouble = Trouble(ProblemType.FAILED, "something unexpected happened here; it is in our log")
            return _problem(name, trouble), PROBLEM


class SharedRead:
    """Reads and encodes for all who ask at once.

    Whoever asks while a read is under way is given the next one, which begins after that: so nobody is told how things
    were before he asked, and however many ask, one read is under way and one is to come.
    """

    def __init__(self, read: Callable[[], Awaitable[msgspec.Struct]]) -> None:
        self._read = read
        self._current: asyncio.Task[bytes] | None = None
        self._coming: asyncio.Task[bytes] | None = None

    async def next(self) -> bytes:
        """What is read after this call."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._begin(self._current), name="read for all")
        return await asyncio.shield(self._coming)

    async def _begin(self, current: asyncio.Task[bytes] | None) -> bytes:
        if current is not None:
            await asyncio.wait([current])
        self._current, self._coming = self._coming, None
        return msgspec.json.encode(await self._read())


def _beyond_its_time(body: bytes) -> bytes:
    """What tells whether something has changed: all but the moment of the look, which comes first where it is told."""
    return body.partition(b",")[2] if body.startswith(b'{"at":') else body


def _problem(name: str, trouble: Trouble) -> bytes:
    kind = trouble.kind
    told = LiveProblem(
        topic=name, type=kind.uri, title=kind.value.title, status=trouble.status, detail=trouble.told("").detail
    )
    return msgspec.json.encode(told)
