"""Channels: state that is read and encoded once, and sent to many listeners.

A channel has the latest snapshot of something. A listener follows one or more channels. A slow listener gets the latest
snapshot of each channel when it is ready; snapshots in between are skipped.
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
    """An encoded state, ready to be sent."""

    number: int
    """Increases with each snapshot of the channel."""
    is_last: bool
    body: bytes
    event: bytes
    """The state as a server-sent event."""

    @classmethod
    def of(
        cls, number: int, body: bytes, kind: str, *, is_last: bool = False, ident: str | None = None
    ) -> "ChannelState":
        """A snapshot with an event of the type `kind`; `ident` is the id of the event, by default the number."""
        told = number if ident is None else ident
        return cls(number, is_last, body, f"id: {told}\nevent: {kind}\ndata: ".encode() + body + b"\n\n")


class Channel:
    """The latest snapshot of something, and its listeners."""

    def __init__(self) -> None:
        self.latest: ChannelState | None = None
        self.has_ended = False
        self.listeners: set[Listener] = set()
        self.following: asyncio.Task[None] | None = None
        """The task that reads the state and publishes snapshots while there are listeners."""

    def show(self, snapshot: ChannelState) -> None:
        """Publish a snapshot to all listeners."""
        self.latest = snapshot
        self.wake()

    def wake(self) -> None:
        """Wake all listeners: there is a new snapshot, or the channel has ended."""
        for listener in self.listeners:
            listener.wake()


class Listener:
    """Receives the latest snapshots of some channels."""

    def __init__(self, channels: Sequence[Channel], closing: asyncio.Event) -> None:
        """Join the channels; call `leave` when done."""
        self.channels, self._closing = tuple(channels), closing
        self._turns = deque(self.channels)
        # Below any number, so that a new listener gets the present state of each channel first.
        self._seen = dict.fromkeys(self.channels, -1)
        self._news = asyncio.Event()
        for channel in self.channels:
            channel.listeners.add(self)
        self.wake()

    @property
    def is_over(self) -> bool:
        """Whether no more snapshots follow: all channels have ended, or the server stops."""
        ended = all(channel.has_ended for channel in self.channels)
        return self._closing.is_set() or (ended and self._next() is None)

    def wake(self) -> None:
        """Wake `next`, because there may be a new snapshot."""
        self._news.set()

    def leave(self) -> None:
        """Leave all joined channels."""
        for channel in self.channels:
            channel.listeners.discard(self)

    async def next(self, within_s: float) -> ChannelState | None:
        """The next unseen snapshot; None after `within_s` seconds, or when no more follow."""
        deadline = asyncio.get_running_loop().time() + within_s
        while (channel := self._next()) is None and not self.is_over:
            # Cleared after the check and before the wait, without an await in between: no snapshot is missed.
            self._news.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or not await occurs(self._news, within_s=left_s):
                return None
        # The latest snapshot is read only now: those that came in between are skipped.
        if channel is None or channel.latest is None or self._closing.is_set():
            return None
        self._seen[channel] = channel.latest.number
        self._turns.remove(channel)
        self._turns.append(channel)  # round robin: a busy channel does not delay the others
        return channel.latest

    def _next(self) -> Channel | None:
        for channel in self._turns:
            if channel.latest is not None and channel.latest.number > self._seen[channel]:
                return channel
        return None


class ListenerLimit:
    """Limits the number of event streams that are open at once in this process."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0

    @contextmanager
    def taken(self) -> Generator[None]:
        """Occupy one stream for the length of a block. Raises `TooManyWaiting` if all are in use."""
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
