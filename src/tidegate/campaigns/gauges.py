"""Figures of all campaigns together, found out when somebody asks for the metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tidegate.campaigns import records
from tidegate.campaigns.keys import busy_key, campaign_keys, campaigns_unit, stream_name
from tidegate.database import Database
from tidegate.flow.stream import StreamKeys
from tidegate.kernel.clock import monotonic_ms
from tidegate.kernel.errors import TidegateError
from tidegate.telemetry import metrics
from tidegate.telemetry.logs import get_logger
from tidegate.valkey import Key, Valkey

log = get_logger(__name__)

_WITHIN_S = 2.0
_AT_ONCE = 1000
_LETTERS_EVERY_MS = 60_000.0
"""Any campaign may have dead letters, also one that has been quiet for years: not worth a look at every question."""


class CampaignGauges:
    """Campaigns at work, entries in line, and dead letters."""

    def __init__(self, valkey: Valkey, database: Database, *, letters_every_ms: float = _LETTERS_EVERY_MS) -> None:
        self._valkey, self._database = valkey, database
        self._letters_every_ms, self._next_letters_ms = letters_every_ms, float("-inf")

    async def refresh(self) -> None:
        """Find out; what cannot be found out is shown as not a number."""
        looks = [self._busy]
        if monotonic_ms() >= self._next_letters_ms:
            looks.append(self._letters)
        await asyncio.gather(*(self._try(look) for look in looks))

    async def _busy(self) -> None:
        metrics.forget(metrics.CAMPAIGNS_ACTIVE)
        metrics.forget(metrics.CAMPAIGN_PENDING)
        busy = [each.decode() for each in await self._valkey.execute("SMEMBERS", busy_key(self._valkey))]
        pending = await self._lengths([campaign_keys(self._valkey, each)["stream"] for each in busy])
        metrics.CAMPAIGNS_ACTIVE.set(len(busy))
        metrics.CAMPAIGN_PENDING.set(pending)

    async def _letters(self) -> None:
        metrics.forget(metrics.CAMPAIGN_DEAD_LETTERS)
        letters, ids = 0, await self._database.read(records.ids, None, _AT_ONCE)
        unit = campaigns_unit(self._valkey)
        while ids:
            streams = [StreamKeys(unit, stream_name(each)).dead for each in ids]
            if await self._valkey.execute("EXISTS", *streams):  # one command for a thousand that hardly ever have any
                letters += await self._lengths(streams)
            ids = await self._database.read(records.ids, ids[-1], _AT_ONCE)
        metrics.CAMPAIGN_DEAD_LETTERS.set(letters)
        self._next_letters_ms = monotonic_ms() + self._letters_every_ms

    async def _lengths(self, streams: Sequence[Key]) -> int:
        """Of all of them together."""
        total = 0
        for start in range(0, len(streams), _AT_ONCE):
            replies = await self._valkey.pipeline([("XLEN", key) for key in streams[start : start + _AT_ONCE]])
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
                total += reply
        return total

    async def _try(self, look: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(_WITHIN_S):
                await look()
        except (TidegateError, TimeoutError) as error:
            log.warning("metrics.source_failed", source="campaigns", error=str(error) or "no answer in time")
