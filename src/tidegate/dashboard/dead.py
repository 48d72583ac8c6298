"""What failed for good and waits for somebody: counted, wherever it lies."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from tidegate.app import Collection, Snapshots
from tidegate.core.clock import monotonic_ms
from tidegate.dashboard.looks import DATABASE, TRANSPORT, VALKEY, Looks, Unknown
from tidegate.storage.sql import outbox
from tidegate.systems.campaigns.gauges import dead_letters
from tidegate.systems.crawl.raw_states import RawState

_MOST_NAMED = 20
_PAUSES = 50
"""So many times as long as it took is a look at all campaigns believed: 100 ms of every 5 s, and no more."""

DeadKind = Literal["events", "messages", "snapshots", "campaigns", "crawl"]


class DeadPart(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one place."""

    name: str
    """Which stream, or which campaign."""
    count: int


class DeadCount(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one kind."""

    kind: DeadKind
    count: int | None
    """Null where that cannot be found out now."""
    parts: list[DeadPart]
    """Of messages: which streams; of campaigns: which ones, the twenty that have most."""
    link: str
    """Where the dashboard shows them."""


class DeadOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of every kind that this installation has."""

    at: datetime
    dead: list[DeadCount]
    unknown: list[Unknown]


class DeadReader:
    """Counts."""

    def __init__(self, collection: Collection, snapshots: Snapshots | None) -> None:
        self._parts, self._raws, self._snapshots = collection.parts, collection.crawl.raws, snapshots
        self._campaign_letters: tuple[float, Mapping[str, int]] = (-math.inf, {})

    async def read(self) -> DeadOverview:
        """Every kind."""
        looks = Looks()
        dead = await self.counts(looks)
        return DeadOverview(at=self._parts.database.clock.now(), dead=dead, unknown=looks.unknown)

    async def counts(self, looks: Looks) -> list[DeadCount]:
        """The same, as a part of something larger; what is unknown is a part called `dead/` and its kind."""
        asked = [self._events(looks), self._messages(looks), self._campaigns(looks), self._crawl(looks)]
        if self._snapshots is not None:
            asked.append(self._refreshes(looks, self._snapshots))
        return list(await asyncio.gather(*asked))

    async def _events(self, looks: Looks) -> DeadCount:
        depth = await looks.at(DATABASE, self._parts.database.read(outbox.depth), "dead/events")
        return _count("events", None if depth is None else depth.dead)

    async def _messages(self, looks: Looks) -> DeadCount:
        streams = (self._parts.jobs, self._parts.alarms)
        asked = asyncio.gather(*(stream.dead_letters.count() for stream in streams))
        found = await looks.at(VALKEY, asked, "dead/messages")
        if found is None:
            return _count("messages", None)
        named = zip(streams, found, strict=True)
        return _count("messages", sum(found), [DeadPart(name=each.name, count=n) for each, n in named if n])

    async def _campaigns(self, looks: Looks) -> DeadCount:
        found = await looks.at(f"{DATABASE} or {VALKEY}", self._of_campaigns(), "dead/campaigns")
        if found is None:
            return _count("campaigns", None)
        most = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:_MOST_NAMED]
        return _count("campaigns", sum(found.values()), [DeadPart(name=name, count=n) for name, n in most])

    async def _of_campaigns(self) -> Mapping[str, int]:
        """Any campaign may have some. Where there are so many campaigns that a look takes long, it is seldom taken."""
        kept_until_ms, found = self._campaign_letters
        if monotonic_ms() >= kept_until_ms:
            began_ms = monotonic_ms()
            found = await dead_letters(self._parts.valkey, self._parts.database)
            took_ms = monotonic_ms() - began_ms
            self._campaign_letters = monotonic_ms() + took_ms * _PAUSES, found
        return found

    async def _crawl(self, looks: Looks) -> DeadCount:
        found = await looks.at(DATABASE, self._raws.counts([RawState.FAILED]), "dead/crawl")
        return _count("crawl", None if found is None else found[RawState.FAILED])

    async def _refreshes(self, looks: Looks, snapshots: Snapshots) -> DeadCount:
        return _count("snapshots", await looks.at(TRANSPORT, snapshots.transport.dead_count(), "dead/snapshots"))


def _count(kind: DeadKind, count: int | None, parts: Sequence[DeadPart] = ()) -> DeadCount:
    return DeadCount(kind=kind, count=count, parts=list(parts), link=f"#/dead/{kind}")
