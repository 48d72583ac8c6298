"""The dashboard's overview of dead letters: how many there are of each kind, in total and by part."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidegate.engine.collection import Collection
from tidegate.runtime.waiting import PartialReads, UnreadPart
from tidegate.system import DeadLetterStore, OpenSystem

_MOST_NAMED = 20
_FIRST = {"events": 0, "messages": 1}


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
        self._clock = collection.parts.database.clock
        stores = [each for system in systems for each in system.dead_letters()]
        # Those of the engine first, whatever the order of the systems.
        self._stores = sorted(stores, key=lambda store: _FIRST.get(store.kind, len(_FIRST)))

    async def read(self) -> DeadOverview:
        """Count the dead letters of all kinds."""
        reads = PartialReads()
        dead = await self.counts(reads)
        return DeadOverview(at=self._clock.now(), dead=dead, unknown=reads.unknown)

    async def counts(self, reads: PartialReads) -> list[DeadCount]:
        """Like `read`, as a part of other reads; a failed count is reported as `dead/` and the kind."""
        return list(await asyncio.gather(*(_count(reads, each) for each in self._stores)))


async def _count(reads: PartialReads, store: DeadLetterStore) -> DeadCount:
    """Count the dead letters of one kind, in total and by part; None if its server does not answer."""
    found = await reads.read(store.server, store.count(), f"dead/{store.kind}")
    if found is None:
        return _dead_count(store, None)
    most = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:_MOST_NAMED]
    parts = [DeadPartCount(name=name, count=n) for name, n in most if name and n]
    return _dead_count(store, sum(found.values()), parts)


def _dead_count(store: DeadLetterStore, count: int | None, parts: Sequence[DeadPartCount] = ()) -> DeadCount:
    return DeadCount(kind=store.kind, label=store.label, count=count, parts=list(parts), link=f"#/dead/{store.kind}")
