"""What is shown to many at once: read once, encoded once, and the latest for whoever is ready.

A channel shows something as it is at one moment after the other. A listener hears one channel or several; one that is
slow is shown the latest of each when it is ready, and what came between is left out.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import msgspec

from tidegate.core.errors import TooManyWaiting
from tidegate.core.telemetry import metrics
from tidegate.runtime.waiting import occurs


class ChannelState(msgspec.Struct, frozen=True):
    """How something was at one moment, ready to be sent."""

    number: int
    """Grows from one to the next of its channel."""
    is_last: bool
    body: bytes
    event: bytes
    """The same as a server-sent event."""

    @classmethod
    def of(
        cls, number: int, body: bytes, kind: str, *, is_last: bool = False, ident: str | None = None
    ) -> "ChannelState":
        """An event of this `kind`; `ident` is its id, where that is not the number."""
        told = number if ident is None else ident
        return cls(number, is_last, body, f"id: {told}\nevent: {kind}\ndata: ".encode() + body + b"\n\n")


class Channel:
    """One thing, how it was last seen, and who listens."""

    def __init__(self) -> None:
        self.latest: ChannelState | None = None
        self.has_ended = False
        self.listeners: set[Listener] = set()
        self.following: asyncio.Task[None] | None = None
        """Whoever looks and shows, for as long as somebody listens."""

    def show(self, snapshot: ChannelState) -> None:
        """From now on this is the latest."""
        self.latest = snapshot
        self.wake()

    def wake(self) -> None:
        """There is something to see, or nothing more will come."""
        for listener in self.listeners:
            listener.wake()


class Listener:
    """One who listens."""

    def __init__(self, channels: Sequence[Channel], closing: asyncio.Event) -> None:
        """It joins the channels, and has to `leave` them."""
        self.channels, self._closing = tuple(channels), closing
        self._turns = deque(self.channels)
        self._seen = dict.fromkeys(self.channels, -1)
        self._news = asyncio.Event()
        for channel in self.channels:
            channel.listeners.add(self)
        self.wake()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come: what was listened to is gone, or the server stops."""
        ended = all(channel.has_ended for channel in self.channels)
        return self._closing.is_set() or (ended and self._next() is None)

    def wake(self) -> None:
        """There is something to see."""
        self._news.set()

    def leave(self) -> None:
        """Listen no more."""
        for channel in self.channels:
            channel.listeners.discard(self)

    async def next(self, within_s: float) -> ChannelState | None:
        """The latest of a channel that was not seen yet; None when `within_s` seconds passed, or all is over."""
        deadline = asyncio.get_running_loop().time() + within_s
        while (channel := self._next()) is None and not self.is_over:
            self._news.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or not await occurs(self._news, within_s=left_s):
                return None
        if channel is None or channel.latest is None or self._closing.is_set():
            return None
        self._seen[channel] = channel.latest.number
        self._turns.remove(channel)
        self._turns.append(channel)  # the others come first now: a busy channel keeps nobody waiting
        return channel.latest

    def _next(self) -> Channel | None:
        for channel in self._turns:
            if channel.latest is not None and channel.latest.number > self._seen[channel]:
                return channel
        return None


class ListenerLimit:
    """How many may listen at once in this process, whatever they listen to."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0

    @contextmanager
    def taken(self) -> Generator[None]:
        """One of them, for the length of a block; raise `TooManyWaiting` where there is none."""
        if self._taken >= self._most:
            raise TooManyWaiting("events", most=self._most)
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._taken += change
        metrics.HTTP_LISTENERS.set(self._taken)
