"""The dashboard's overview of dead letters: how many there are of each kind, in total and by part."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidegate.engine.collection import Collection
from tidegate.runtime.partial_reads import DATABASE, VALKEY, PartialReads, UnreadPart
from tidegate.storage.sql import outbox
from tidegate.system import DeadLetterCounter, OpenSystem

_MOST_NAMED = 20


class DeadPartCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of dead letters of one stream or campaign."""

    name: str
    """Name of the stream or campaign."""
    count: int


class DeadCount(msgspec.Struct, frozen=True, kw_only=True):
    """Number of dead letters of one kind."""

    kind: str
    label: str
    """Display name of the kind."""
    count: int | None
    """Null if it cannot be read now."""
    parts: list[DeadPartCount]
    """The count per stream or per campaign; at most the twenty campaigns with the most dead letters."""
    link: str
    """The dashboard page that lists them."""


class DeadOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of dead letters of all kinds."""

    at: datetime
    dead: list[DeadCount]
    unknown: list[UnreadPart]


class DeadReader:
    """Counts the dead letters of all kinds."""

    def __init__(self, collection: Collection, systems: Sequence[OpenSystem]) -> None:
        self._parts, self._streams = collection.parts, collection.streams
        self._counters = [each for system in systems for each in system.dead_letters()]

    async def read(self) -> DeadOverview:
        """Count the dead letters of all kinds."""
        reads = PartialReads()
        dead = await self.counts(reads)
        return DeadOverview(at=self._parts.database.clock.now(), dead=dead, unknown=reads.unknown)

    async def counts(self, reads: PartialReads) -> list[DeadCount]:
        """Like `read`, as a part of other reads; a failed count is reported as `dead/` and the kind."""
        asked = [self._count_events(reads), self._count_messages(reads)]
        asked += [self._count_system(reads, each) for each in self._counters]
        return list(await asyncio.gather(*asked))

    async def _count_events(self, reads: PartialReads) -> DeadCount:
        """Count the dead events of the outbox."""
        depth = await reads.read(DATABASE, self._parts.database.read(outbox.depth), "dead/events")
        return _dead_count("events", None if depth is None else depth.dead)

    async def _count_messages(self, reads: PartialReads) -> DeadCount:
        """Count the dead messages of all job streams of this process, in total and by stream."""
        asked = asyncio.gather(*(stream.dead_letters.count() for stream in self._streams))
        found = await reads.read(VALKEY, asked, "dead/messages")
        if found is None:
            return _dead_count("messages", None)
        named = zip(self._streams, found, strict=True)
        return _dead_count("messages", sum(found), [DeadPartCount(name=each.name, count=n) for each, n in named if n])

    async def _count_system(self, reads: PartialReads, counter: DeadLetterCounter) -> DeadCount:
        """Count the dead letters of one system, in total and by part; None if its server does not answer."""
        found = await reads.read(counter.server, counter.count(), f"dead/{counter.kind}")
        if found is None:
            return _dead_count(counter.kind, None, label=counter.label)
        most = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:_MOST_NAMED]
        parts = [DeadPartCount(name=name, count=n) for name, n in most if name]
        return _dead_count(counter.kind, sum(found.values()), parts, label=counter.label)


def _dead_count(
    kind: str, count: int | None, parts: Sequence[DeadPartCount] = (), *, label: str | None = None
) -> DeadCount:
    return DeadCount(kind=kind, label=label or kind, count=count, parts=list(parts), link=f"#/dead/{kind}")
