"""Delivers topics to watchers: each topic is read once for all of them, and only while it is watched.

A watched topic has one follower task. It reads when runs changed, if the topic depends on runs, and at the latest after
two seconds, because most data has no change events; at most once a second, and never for most of the time. The result
is encoded once, and sent if it has changed. While a server does not answer, watchers receive a problem event, and the
new state follows soon after the server is available again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from tidegate.core.clock import monotonic_ms
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.http.events import Channel, ChannelState, Listener, ListenerLimit
from tidegate.http.problems import ProblemType, RequestFailed, to_request_failed
from tidegate.runtime.waiting import end, occurs
from tidegate.system import Topic

log = get_logger(__name__)

PROBLEM = "problem"
"""Kind of the event for a topic that cannot be read."""
_NO_ANSWER = "a server that is needed does not answer in time"
_AT_MOST = 4
"""A topic pauses for this many times the duration of its last read, so it takes a fifth of one reader at most."""
_WHILE_BUSY, _LONGEST_REST_S = 100, 3.0
"""Up to this many seconds, it pauses this many times the duration, so it takes a hundredth of a busy process."""
_NEVER_LONGER_S = 5.0
"""Maximum pause. A read that took this long was blocked, and watchers need the state after the recovery."""


class LiveProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a topic cannot be read now. It is retried; the next event of the topic ends the problem."""

    topic: str
    type: str
    title: str
    status: int
    detail: str


class Hub:
    """All topics of this process, with their watchers."""

    def __init__(self, topics: Iterable[Topic], change_feed: RunChangeFeed, seats: ListenerLimit) -> None:
        self._topics: Mapping[str, Topic] = {topic.name: topic for topic in topics}
        self._reads = {name: SharedRead(topic.read) for name, topic in self._topics.items()}
        self._change_feed, self._seats = change_feed, seats
        self._channels: dict[str, Channel] = {}
        self._closing = asyncio.Event()

    @property
    def names(self) -> Sequence[str]:
        """Names of all topics."""
        return list(self._topics)

    async def answer(self, name: str) -> bytes:
        """Read a topic and encode it; concurrent calls share a read. Raises what the read raises."""
        return await self._reads[name].next()

    @asynccontextmanager
    async def listen(self, names: Sequence[str]) -> AsyncGenerator[Listener]:
        """Receive topics now and after each change; raises `TooManyWaiting` if there are too many watchers."""
        with self._seats.taken():
            listener = Listener([self._channel(name) for name in dict.fromkeys(names)], self._closing)
            try:
                yield listener
            finally:
                listener.leave()
                await self._drop_unused_channels()

    def close(self) -> None:
        """End all event streams."""
        self._closing.set()
        for channel in self._channels.values():
            channel.wake()

    def _channel(self, name: str) -> Channel:
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = Channel()
            # The first watcher starts the follower, the last one ends it.
            channel.following = asyncio.create_task(self._follow(name, channel), name=f"follow topic {name}")
        return channel

    async def _drop_unused_channels(self) -> None:
        unused = {name: channel for name, channel in self._channels.items() if not channel.listeners}
        for name in unused:
            # Before the await below: a watcher that comes meanwhile gets a new channel.
            del self._channels[name]
        await end(*(channel.following for channel in unused.values() if channel.following is not None))

    async def _follow(self, name: str, channel: Channel) -> None:
        """Read and publish a topic until it is not watched any more."""
        topic, moved = self._topics[name], asyncio.Event()
        async with AsyncExitStack() as stack:
            if topic.follows_runs:
                # Subscribe before the first read, so that no change in between is missed.
                await stack.enter_async_context(self._change_feed.follow(lambda _: moved.set(), gap=topic.gap))
            number, shown = 0, (b"", "")
            while True:
                began_ms = monotonic_ms()
                # Cleared before the read: a change during it causes another one.
                moved.clear()
                body, kind = await self._look(name)
                # Every read has another time. Without it, an unchanged state is recognised and not sent.
                if (latest := (_without_time(body), kind)) != shown:
                    number, shown = number + 1, latest
                    channel.show(ChannelState.of(number, body, kind, ident=f"{name}-{number}"))
                took_s = (monotonic_ms() - began_ms) / 1000
                # In proportion to the cost of the read: the slower a server is, the more rarely it is asked.
                rest_s = max(took_s * _AT_MOST, min(took_s * _WHILE_BUSY, _LONGEST_REST_S))
                gap_s = max(topic.gap.total_seconds() - took_s, min(rest_s, _NEVER_LONGER_S))
                await asyncio.sleep(gap_s)
                await occurs(moved, within_s=max(0.0, topic.silence.total_seconds() - took_s - gap_s))

    async def _look(self, name: str) -> tuple[bytes, str]:
        """The body and kind of the next event."""
        try:
            async with asyncio.timeout(self._topics[name].within.total_seconds()):
                return await self._reads[name].next(), name
        except TimeoutError:  # the read continues, and the next one starts after it
            return _problem(name, RequestFailed(ProblemType.UNAVAILABLE, _NO_ANSWER)), PROBLEM
        except Exception as error:  # any error: the other topics are still delivered
            failure = to_request_failed(error)
            if failure is None:
                log.error("dashboard.look_failed", parts=name, exc_info=error)
                failure = RequestFailed(ProblemType.FAILED, "an unexpected error occurred; see the log")
            return _problem(name, failure), PROBLEM


class SharedRead:
    """Reads and encodes once for concurrent callers.

    A caller during a read receives the result of the next one, which starts afterwards: so no result is older than its
    call, and at most one read is in progress and one is waiting.
    """

    def __init__(self, read: Callable[[], Awaitable[msgspec.Struct]]) -> None:
        self._read = read
        self._current: asyncio.Task[bytes] | None = None
        self._coming: asyncio.Task[bytes] | None = None

    async def next(self) -> bytes:
        """The result of a read that starts after this call."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._begin(self._current), name="read for all")
        # A caller that leaves must not cancel the read of the others.
        return await asyncio.shield(self._coming)

    async def _begin(self, current: asyncio.Task[bytes] | None) -> bytes:
        if current is not None:
            # `wait` and not `await`: an error of the previous read concerns its own callers.
            await asyncio.wait([current])
        # From here on the read is in progress, so later callers wait for the next one.
        self._current, self._coming = self._coming, None
        return msgspec.json.encode(await self._read())


def _without_time(body: bytes) -> bytes:
    """The body without its leading time, to detect changes."""
    return body.partition(b",")[2] if body.startswith(b'{"at":') else body


def _problem(name: str, failure: RequestFailed) -> bytes:
    kind = failure.kind
    problem = LiveProblem(
        topic=name, type=kind.uri, title=kind.value.title, status=failure.status, detail=failure.problem("").detail
    )
    return msgspec.json.encode(problem)
