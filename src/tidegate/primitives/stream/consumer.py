"""One reader of a stream.

The server notes a message as delivered when it sends the reply, not when we get it. A reply can be lost: the connection
breaks, or the task that waits is cancelled. So after every read that did not end well, and before its first one, a
consumer asks for all that is noted as its own, and returns what it has not seen yet. Nothing that was delivered to it
stays unseen, and nothing that it already has is returned twice.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from tidegate.core.arguments import require_at_most, require_not_negative, require_positive
from tidegate.core.errors import ValkeyUnavailable
from tidegate.primitives.stream.message import Entry, Message, to_message
from tidegate.primitives.stream.readers import BlockingReader, PausingReader, Reader
from tidegate.storage.valkey import Valkey

if TYPE_CHECKING:
    from tidegate.primitives.stream.stream import Stream

_LARGEST_READ = 1000
_LONGEST_WAIT_S = 3600


class Consumer:
    """Reads messages, and holds each until it is acknowledged, refused or given back.

    At any time there is one object per name, and one `read` under way on it.
    """

    def __init__(self, valkey: Valkey, stream: "Stream", name: str) -> None:
        self.name = name
        self._valkey, self._stream = valkey, stream
        self._held: set[str] = set()
        self._unsure_after: str | None = "0"
        """What was delivered to us behind this id we may not have seen; None: we have seen all."""
        blocking = stream.settings.blocking
        can_block = valkey.info.can_block if blocking is None else blocking
        pause_s = stream.settings.poll_interval.total_seconds()
        self._reader: Reader = BlockingReader(self._fetch_new) if can_block else PausingReader(self._fetch_new, pause_s)

    @property
    def held(self) -> frozenset[str]:
        """The ids of the messages that were read and not yet acknowledged, refused or given back."""
        return frozenset(self._held)

    async def read(self, count: int, within_s: float) -> list[Message]:
        """At most `count` messages as soon as there are some; none when `within_s` seconds passed without any.

        Makes the group where it is missing. Raises `ValkeyUnavailable` where the server is: simply call it again.
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
        """These are done and their effects are safe. How many there were: others have gone to somebody else."""
        ids = list(ids)
        done = await self._stream.ack(ids)
        self.settled(ids)
        return done

    async def retry(self, ids: Iterable[str], reason: str) -> int:
        """Let somebody try these again, at once, unless it was the last try. How many were still ours."""
        ids = list(ids)
        refused = await self._stream.retry(self.name, ids, reason)
        self.settled(ids)
        return refused

    async def fail(self, message: Message, reason: str) -> bool:
        """Nobody can handle this one: make it a dead letter. False when it was no longer ours."""
        buried = await self._stream.fail(self.name, [message.id], reason)
        self.settled([message.id])
        return buried == 1

    async def still_held(self, ids: Iterable[str]) -> set[str]:
        """Which of these are ours, and were not given to another consumer.

        Where the server lost its data, all are: they were given to none.
        """
        return await self._stream.held_by(self.name, ids)

    def settled(self, ids: Iterable[str]) -> None:
        """These were acknowledged by a script of the caller's own; forget them."""
        self._held.difference_update(ids)

    async def leave(self, *, counts: bool = False) -> int:
        """Give back what was read and not acknowledged, at once and uncounted, unless it `counts`; leave the group.

        No `read` may be under way; one that was cancelled is fine, as it closed its connection and the server serves
        it no more. Returns how many messages that were.
        """
        released = await self._stream.release(self.name, counts=counts)
        self._held.clear()
        return released

    async def _read_unseen(self, count: int) -> list[Message]:
        """What was delivered to us in a reply that we never got."""
        while self._unsure_after is not None:
            try:
                entries = await self._fetch(count, None, self._unsure_after)
            except ResponseError as error:
                await self._stream.restore_group(error)
                entries = []
            # An entry without fields was deleted while it was pending, by somebody who knew nothing of groups.
            if deleted := [entry_id.decode() for entry_id, fields in entries if not fields]:
                await self._stream.ack(deleted)
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
                await self._stream.restore_group(error)

    async def _fetch_new(self, count: int, block_ms: int | None) -> list[Entry]:
        return await self._fetch(count, block_ms, ">")

    async def _fetch(self, count: int, block_ms: int | None, start: str) -> list[Entry]:
        """Ask once. Never through `execute`, which would ask again after an error and so skip what was lost."""
        key = self._stream.keys.stream
        command: list[Any] = ["XREADGROUP", "GROUP", self._stream.settings.group, self.name, "COUNT", count]
        if block_ms is not None:
            command += ["BLOCK", block_ms]
        reply = await self._valkey.execute_blocking(*command, "STREAMS", key, start, within_s=(block_ms or 0) / 1000)
        return reply[key.encode()] if reply else []

    def _take(self, entries: list[Entry]) -> list[Message]:
        """Those that we do not have in hand; a group that was lost and made again delivers even those once more."""
        messages = [to_message(entry) for entry in entries if entry[1]]
        unseen = [message for message in messages if message.id not in self._held]
        self._held.update(message.id for message in unseen)
        return unseen
