"""From one transport to another while everything runs: publish to the new one, drain the old one, then switch.

Every process is started again with the new transport and the previous one, one after the other. From then on it
publishes to the new one, and its workers read both. Locks and versions are the same for both, so a subject that has an
event on each is called once where the older event is obsolete. Processes that were not started again go on with the
previous transport, which is read as long as anything comes. When it is empty, the setting is removed.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds
from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.valkey import Key
from tidegate.systems.snapshots.transports.protocol import (
    DeadEntry,
    Message,
    RefreshTopic,
    Transport,
    TransportConsumer,
)

if TYPE_CHECKING:
    from tidegate.primitives.stream import Stream

log = get_logger(__name__)

_LETTERS_AT_ONCE = 100
_LOOKS = Backoff(first=timedelta(seconds=1), most=timedelta(minutes=5), jitter=0.1)


class MigratingTransport:
    """See `Transport`: publishes to `new`, and counts what waits in `previous` too. See `TransportMigration`."""

    def __init__(self, new: Transport, previous: Transport) -> None:
        self.new, self.previous = new, previous

    @property
    def recoverable(self) -> "Sequence[Stream]":
        """See `Transport`."""
        return [*self.new.recoverable, *self.previous.recoverable]

    async def start(self) -> None:
        """See `Transport`."""
        await self.previous.start()
        await self.new.start()

    async def close(self) -> None:
        """See `Transport`."""
        try:
            await self.new.close()
        finally:
            await self.previous.close()

    async def create_topics(self) -> list[str]:
        """See `Transport`."""
        return await self.new.create_topics()

    async def publish(self, topic: RefreshTopic, messages: Sequence[Message]) -> None:
        """See `Transport`."""
        await self.new.publish(topic, messages)

    def stream_of(self, topic: RefreshTopic) -> Key | None:
        """See `Transport`."""
        return self.new.stream_of(topic)

    def consumer(self, topic: RefreshTopic, group: str) -> TransportConsumer:
        """See `Transport`: of the new one. Workers of their own read the previous one."""
        return self.new.consumer(topic, group)

    async def lag(self, topic: RefreshTopic, group: str) -> int:
        """See `Transport`."""
        return await self.new.lag(topic, group) + await self.previous.lag(topic, group)

    async def unfinished(self) -> int:
        """See `Transport`."""
        return await self.new.unfinished() + await self.previous.unfinished()

    async def dead_count(self) -> int:
        """See `Transport`."""
        return await self.new.dead_count() + await self.previous.dead_count()

    async def dead(self, *, after: str | None = None, limit: int = 50) -> list[DeadEntry]:
        """See `Transport`: those of the new one, to which the leader moves the others."""
        return await self.new.dead(after=after, limit=limit)

    async def dead_one(self, entry_id: str) -> DeadEntry:
        """See `Transport`."""
        try:
            return await self.new.dead_one(entry_id)
        except NotFound:
            return await self.previous.dead_one(entry_id)

    async def drop(self, entry_id: str) -> bool:
        """See `Transport`."""
        return await self.new.drop(entry_id) or await self.previous.drop(entry_id)


class TransportMigration:
    """A source of the timekeeper: moves dead letters to the new transport, and tells when the previous one is empty.

    A letter is published on the new one before it is dropped from the previous one: a crash in between leaves it on
    both, and it may be listed twice, never lost.
    """

    def __init__(self, moving: MigratingTransport) -> None:
        self._moving, self._looks, self._is_drained = moving, 0, False

    async def fire(self) -> int:
        """Move some letters, and look at what is left; returns in how many ms to look again."""
        new, previous = self._moving.new, self._moving.previous
        if letters := await previous.dead(limit=_LETTERS_AT_ONCE):
            await new.publish(RefreshTopic.DEAD, [(each.key, each.value) for each in letters])
            for each in letters:
                await previous.drop(each.id)
            log.info("snapshots.letters_moved", letters=len(letters))
            return 0
        left = await previous.unfinished()
        if left == 0 and not self._is_drained:
            log.info("snapshots.transport_drained")
        self._is_drained = left == 0
        self._looks = 1 if left else self._looks + 1
        return milliseconds(_LOOKS.delay(self._looks))

    def __repr__(self) -> str:
        return "TransportMove()"
