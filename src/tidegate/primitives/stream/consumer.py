"""A consumer of a stream.

It waits for messages in blocking reads, or in reads with growing pauses where blocking is not allowed.

The server records a message as delivered when it sends the reply, not when the reply is received. A reply can be lost:
the connection breaks, or the waiting task is cancelled. So before its first read and after every failed read, a
consumer requests all messages that are recorded as its own, and returns those that it has not returned before. No
delivered message is missed, and none is returned twice.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from redis.exceptions import ResponseError

from tidegate.core.arguments import require_at_most, require_not_negative, require_positive
from tidegate.core.errors import ValkeyUnavailable
from tidegate.primitives.stream.message import Entry, Message, to_message
from tidegate.storage.valkey import Valkey

if TYPE_CHECKING:
    from tidegate.primitives.stream.stream import Stream

Fetch = Callable[[int, int | None], Awaitable[list[Entry]]]
"""Reads up to `count` new messages; blocks up to `block_ms`, or not at all if that is None."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class Reader(Protocol):
    """A way to wait for new messages."""

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """Wait for messages and return at most `count`; an empty list after `within_s` seconds."""
        ...


class BlockingReader:
    """Waits with one blocking command."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """See `Reader`."""
        # For the server, a block of 0 means forever.
        return await self._fetch(count, math.ceil(within_s * 1000) if within_s > 0 else None)


class PausingReader:
    """Reads repeatedly, with pauses that grow while there is no message. The pause is kept between calls."""

    def __init__(self, fetch: Fetch, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._fetch, self._first_pause_s = fetch, first_pause_s
        self.pause_s = first_pause_s

    async def wait(self, count: int, within_s: float) -> list[Entry]:
        """See `Reader`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not (entries := await self._fetch(count, None)):
            left_s = deadline - loop.time()
            if left_s <= 0:
                return []
            await asyncio.sleep(min(self.pause_s, left_s))
            # The first pause can be set to more than the usual maximum.
            self.pause_s = min(self.pause_s * 2, max(LONGEST_PAUSE_S, self._first_pause_s))
        self.pause_s = self._first_pause_s
        return entries


_LARGEST_READ = 1000
_LONGEST_WAIT_S = 3600


class Consumer:
    """Reads messages, and holds each until it is acknowledged, refused or released.

    There may be one object per name at a time, and one `read` in progress on it.
    """

    def __init__(self, valkey: Valkey, stream: "Stream", name: str) -> None:
        self.name = name
        self._valkey, self._stream = valkey, stream
        self._held: set[str] = set()
        self._unsure_after: str | None = "0"
        """Messages delivered after this id may not have been received; None: all were received."""
        blocking = stream.settings.blocking
        can_block = valkey.info.can_block if blocking is None else blocking
        pause_s = stream.settings.poll_interval.total_seconds()
        self._reader: Reader = BlockingReader(self._fetch_new) if can_block else PausingReader(self._fetch_new, pause_s)

    @property
    def held(self) -> frozenset[str]:
        """Ids of messages that were read and not yet acknowledged, refused or released."""
        return frozenset(self._held)

    async def read(self, count: int, within_s: float) -> list[Message]:
        """Wait for messages and return at most `count`; an empty list after `within_s` seconds without any.

        Creates the group if it is missing. Raises `ValkeyUnavailable`; call it again then.
        """
        require_positive("count", count)
        require_at_most("count", count, _LARGEST_READ)
        require_not_negative("within_s", within_s)
        require_at_most("within_s", within_s, _LONGEST_WAIT_S)
        try:
            return await self._read_unseen(count) or await self._read_new(count, within_s)
        except BaseException:  # also when cancelled: the reply may be on its way
            self._unsure_after = "0"
            raise

    async def ack(self, ids: Iterable[str]) -> int:
        """Acknowledge messages after their effects are committed. Returns how many this consumer still held."""
        ids = list(ids)
        done = await self._stream.ack(ids)
        self.settled(ids)
        return done

    async def retry(self, ids: Iterable[str], reason: str) -> int:
        """Redeliver messages at once, or make them dead letters after the last attempt. Returns how many were held."""
        ids = list(ids)
        refused = await self._stream.retry(self.name, ids, reason)
        self.settled(ids)
        return refused

    async def fail(self, message: Message, reason: str) -> bool:
        """Make a message a dead letter, because no consumer can process it. False if it was no longer held."""
        dead_lettered = await self._stream.fail(self.name, [message.id], reason)
        self.settled([message.id])
        return dead_lettered == 1

    async def still_held(self, ids: Iterable[str]) -> set[str]:
        """The ids that this consumer still holds, i.e. that were not given to another one.

        If the server lost its data, all of them are held: they were not given to another consumer.
        """
        return await self._stream.held_by(self.name, ids)

    def settled(self, ids: Iterable[str]) -> None:
        """Forget messages that a script of the caller acknowledged."""
        self._held.difference_update(ids)

    async def leave(self, *, counts: bool = False) -> int:
        """Release all held messages for redelivery and leave the group. Returns how many there were.

        With `counts`, the delivery counts as an attempt. No `read` may be in progress; a cancelled one is no problem,
        because it closed its connection.
        """
        released = await self._stream.release(self.name, counts=counts)
        self._held.clear()
        return released

    async def _read_unseen(self, count: int) -> list[Message]:
        """Messages that were delivered in a reply that was not received."""
        while self._unsure_after is not None:
            try:
                entries = await self._fetch(count, None, self._unsure_after)
            except ResponseError as error:
                await self._stream.restore_group(error)
                entries = []
            # An entry without fields was deleted while it was pending, by a command that does not know groups.
            if deleted := [entry_id.decode() for entry_id, fields in entries if not fields]:
                await self._stream.ack(deleted)
            # A page that is not full is the last one: after it, no message is missing.
            self._unsure_after = entries[-1][0].decode() if len(entries) == count else None
            if messages := self._take(entries):
                return messages
        return []

    async def _read_new(self, count: int, within_s: float) -> list[Message]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            try:
                return self._take(await self._reader.wait(count, max(deadline - loop.time(), 0)))
            except (ResponseError, ValkeyUnavailable) as error:
                # Raises the error again unless the group was missing.
                await self._stream.restore_group(error)

    async def _fetch_new(self, count: int, block_ms: int | None) -> list[Entry]:
        return await self._fetch(count, block_ms, ">")

    async def _fetch(self, count: int, block_ms: int | None, start: str) -> list[Entry]:
        """Read once. Not through `execute`, which repeats a command after an error and would skip lost messages."""
        key = self._stream.keys.stream
        command: list[Any] = ["XREADGROUP", "GROUP", self._stream.settings.group, self.name, "COUNT", count]
        if block_ms is not None:
            command += ["BLOCK", block_ms]
        reply = await self._valkey.execute_blocking(*command, "STREAMS", key, start, within_s=(block_ms or 0) / 1000)
        return reply[key.encode()] if reply else []

    def _take(self, entries: list[Entry]) -> list[Message]:
        """Messages that are not held yet. A group that was lost and created again delivers held ones once more."""
        messages = [to_message(entry) for entry in entries if entry[1]]
        unseen = [message for message in messages if message.id not in self._held]
        self._held.update(message.id for message in unseen)
        return unseen
