"""Counts the dead letters of all kinds."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidegate.engine.collection import Collection
from tidegate.runtime.partial_reads import DATABASE, VALKEY, PartialReads, UnreadPart
from tidegate.storage.sql import outbox
from tidegate.system import DeadLetterCount, OpenSystem

_MOST_NAMED = 20


class DeadPart(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one stream or campaign."""

    name: str
    """Name of the stream or campaign."""
    count: int


class DeadCount(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one kind."""

    kind: str
    label: str
    """Display name of the kind."""
    count: int | None
    """Null if it cannot be read now."""
    parts: list[DeadPart]
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
        self._of_systems = [each for system in systems for each in system.dead_letters()]

    async def read(self) -> DeadOverview:
        """Count the dead letters of all kinds."""
        reads = PartialReads()
        dead = await self.counts(reads)
        return DeadOverview(at=self._parts.database.clock.now(), dead=dead, unknown=reads.unknown)

    async def counts(self, reads: PartialReads) -> list[DeadCount]:
        """Like `read`, as a part of other reads; a failed count is reported as `dead/` and the kind."""
        asked = [self._events(reads), self._messages(reads)]
        asked += [self._of_system(reads, each) for each in self._of_systems]
        return list(await asyncio.gather(*asked))

    async def _events(self, reads: PartialReads) -> DeadCount:
        depth = await reads.read(DATABASE, self._parts.database.read(outbox.depth), "dead/events")
        return _count("events", None if depth is None else depth.dead)

    async def _messages(self, reads: PartialReads) -> DeadCount:
        asked = asyncio.gather(*(stream.dead_letters.count() for stream in self._streams))
        found = await reads.read(VALKEY, asked, "dead/messages")
        if found is None:
            return _count("messages", None)
        named = zip(self._streams, found, strict=True)
        return _count("messages", sum(found), [DeadPart(name=each.name, count=n) for each, n in named if n])

    async def _of_system(self, reads: PartialReads, counted: DeadLetterCount) -> DeadCount:
        found = await reads.read(counted.server, counted.count(), f"dead/{counted.kind}")
        if found is None:
            return _count(counted.kind, None, label=counted.label)
        most = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:_MOST_NAMED]
        parts = [DeadPart(name=name, count=n) for name, n in most if name]
        return _count(counted.kind, sum(found.values()), parts, label=counted.label)


def _count(kind: str, count: int | None, parts: Sequence[DeadPart] = (), *, label: str | None = None) -> DeadCount:
    return DeadCount(kind=kind, label=label or kind, count=count, parts=list(parts), link=f"#/dead/{kind}")
