"""Opens the transport that the settings select, and changes from one transport to another without downtime.

Kafka is used only where its driver is installed.

To change the transport, all processes are restarted one after the other with the new and the previous transport
configured. From then on they publish to the new transport, and workers read both. Locks and versions are shared, so if
a subject has an event on each transport, the older event is obsolete and skipped. Processes that were not restarted yet
keep using the previous transport, which is read as long as it has events. When it is empty, the setting is removed.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds
from tidegate.core.errors import InvalidSettings, NotFound, TidegateError
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.valkey import Key
from tidegate.system import Context
from tidegate.systems.snapshots.settings import KafkaSettings, SnapshotSettings
from tidegate.systems.snapshots.transports.protocol import (
    DeadEntry,
    Message,
    RefreshTopic,
    Transport,
    TransportConsumer,
)
from tidegate.systems.snapshots.transports.streams import StreamTransport

if TYPE_CHECKING:
    from tidegate.primitives.stream import Stream
    from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport

log = get_logger(__name__)

_LETTERS_AT_ONCE = 100
_CHECKS = Backoff(first=timedelta(seconds=1), most=timedelta(minutes=5), jitter=0.1)


class MigratingTransport:
    """The `Transport` during a migration: publishes to `new`, and counts events of both transports."""

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
        """See `Transport`: a member on the new transport. Separate workers read the previous one."""
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
        """See `Transport`: dead letters of the new transport, to which the leader moves the others."""
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
    """Due source of the leader: moves dead letters to the new transport, and logs when the previous one is empty.

    A dead letter is published before it is dropped from the previous transport: after a crash in between it is on both
    and may be listed twice, but is never lost.
    """

    def __init__(self, transports: MigratingTransport) -> None:
        self._transports, self._checks, self._is_drained = transports, 0, False

    async def fire(self) -> int:
        """Move a batch of dead letters, or count what is left; return in how many ms to call again."""
        new, previous = self._transports.new, self._transports.previous
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
        # Check often while events are left, and less and less often after that: old processes may still publish.
        self._checks = 1 if left else self._checks + 1
        return milliseconds(_CHECKS.delay(self._checks))

    def __repr__(self) -> str:
        return "TransportMove()"


_UNIT = "snapshots"


def open_kafka(settings: KafkaSettings) -> "KafkaTransport":
    """Return the Kafka transport, to be closed by the caller; raises `InvalidSettings` without its driver."""
    # aiokafka needs cramjam for zstd; without it the first publish fails.
    if find_spec("aiokafka") is None or find_spec("cramjam") is None:
        raise InvalidSettings('the transport kafka needs the driver aiokafka: pip install "tidegate[kafka]"')
    from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport

    return KafkaTransport(settings)


def open_transport(parts: Context) -> Transport:
    """Return the transport of this process; a migrating one while `previous_transport` is set."""
    settings = parts.settings.section(SnapshotSettings)
    current = _named(parts, settings.transport)
    if settings.previous_transport is None:
        return current
    return MigratingTransport(current, _named(parts, settings.previous_transport))


def _named(parts: Context, name: str) -> Transport:
    if name == "kafka":
        return open_kafka(parts.settings.section(SnapshotSettings).kafka)
    return StreamTransport(parts.valkey, parts.valkey.unit(_UNIT), parts.owner)


async def warn_of_events_left_behind(parts: Context) -> None:
    """Log a warning if streams have events that no worker reads, since `previous_transport` was removed too early."""
    settings = parts.settings.section(SnapshotSettings)
    if settings.transport == "streams" or settings.previous_transport is not None:
        return
    with suppress(TidegateError):  # the check is optional
        if left := await _named(parts, "streams").unfinished():
            log.warning("snapshots.events_left_behind", events=left)
