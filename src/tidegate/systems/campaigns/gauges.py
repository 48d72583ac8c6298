"""Gauges of all campaigns, computed at scrape time."""

import asyncio
import math
from collections.abc import Mapping, Sequence

from tidegate.core.clock import monotonic_ms
from tidegate.primitives.stream import StreamKeys
from tidegate.runtime.scrape_gauges import compute_gauges
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Key, Valkey
from tidegate.systems.campaigns import campaign_store, metrics
from tidegate.systems.campaigns.scripts import busy_key, campaign_keys, campaigns_unit, stream_name

_AT_ONCE = 1000
_KEPT_FACTOR = 50
"""A count is cached for this many times as long as it took."""
_LETTERS_EVERY_MS = 60_000.0
"""Any campaign may have dead letters, including one that ended years ago, so they are not counted at every scrape."""


class CampaignGauges:
    """Gauges of active campaigns, undecided entries and dead letters."""

    def __init__(self, valkey: Valkey, database: Database, *, letters_every_ms: float = _LETTERS_EVERY_MS) -> None:
        self._valkey, self._database = valkey, database
        self._letters_every_ms, self._next_letters_ms = letters_every_ms, float("-inf")

    async def refresh(self) -> None:
        """Compute the gauges; a gauge that cannot be computed is NaN."""
        looks = [compute_gauges("campaigns", self._busy, [metrics.CAMPAIGNS_ACTIVE, metrics.CAMPAIGN_PENDING])]
        if monotonic_ms() >= self._next_letters_ms:
            looks.append(compute_gauges("campaign letters", self._letters, [metrics.CAMPAIGN_DEAD_LETTERS]))
        await asyncio.gather(*looks)

    async def _busy(self) -> None:
        busy = [each.decode() for each in await self._valkey.execute("SMEMBERS", busy_key(self._valkey))]
        pending = await _lengths(self._valkey, [campaign_keys(self._valkey, each)["stream"] for each in busy])
        metrics.CAMPAIGNS_ACTIVE.set(len(busy))
        metrics.CAMPAIGN_PENDING.set(sum(pending))

    async def _letters(self) -> None:
        metrics.CAMPAIGN_DEAD_LETTERS.set(sum((await dead_letters(self._valkey, self._database)).values()))
        self._next_letters_ms = monotonic_ms() + self._letters_every_ms


class CampaignDeadLetterCounts:
    """Dead letters per campaign, for the dashboard. Counting many campaigns takes long, so the result is cached."""

    def __init__(self, valkey: Valkey, database: Database) -> None:
        self._valkey, self._database = valkey, database
        self._kept_until_ms, self._found = -math.inf, dict[str, int]()

    async def read(self) -> Mapping[str, int]:
        """Return the counts of campaigns with dead letters; counting takes at most `1/_KEPT_FACTOR` of the time."""
        if monotonic_ms() >= self._kept_until_ms:
            began_ms = monotonic_ms()
            self._found = await dead_letters(self._valkey, self._database)
            # In proportion to its cost: a few campaigns are counted often, many of them rarely.
            self._kept_until_ms = monotonic_ms() + (monotonic_ms() - began_ms) * _KEPT_FACTOR
        return self._found


async def dead_letters(valkey: Valkey, database: Database) -> dict[str, int]:
    """Return the number of dead letters of each campaign that has some; campaigns are read a thousand at a time."""
    found, ids = dict[str, int](), await database.read(campaign_store.ids, None, _AT_ONCE)
    unit = campaigns_unit(valkey)
    while ids:
        streams = [StreamKeys(unit, stream_name(each)).dead for each in ids]
        if await valkey.execute("EXISTS", *streams):  # one command for a thousand campaigns, which rarely have any
            lengths = zip(ids, await _lengths(valkey, streams), strict=True)
            found |= {each: length for each, length in lengths if length}
        ids = await database.read(campaign_store.ids, ids[-1], _AT_ONCE) if len(ids) == _AT_ONCE else []
    return found


async def _lengths(valkey: Valkey, streams: Sequence[Key]) -> list[int]:
    """Return the length of each stream."""
    lengths: list[int] = []
    for start in range(0, len(streams), _AT_ONCE):
        replies = await valkey.pipeline([("XLEN", key) for key in streams[start : start + _AT_ONCE]])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
            lengths.append(reply)
    return lengths
