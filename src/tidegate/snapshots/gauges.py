"""Figures of the whole deployment, found out when somebody asks for the metrics."""

import asyncio
from collections.abc import Awaitable

from tidegate.flow.limiter import Limiter
from tidegate.kernel.errors import TidegateError
from tidegate.snapshots.transport import GROUPS, Transport
from tidegate.telemetry import metrics
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

_WITHIN_S = 2.0
_PER_SECOND = "second"
"""The rule of the limiter that counts the calls of a second."""


class SnapshotGauges:
    """Lag of the topics, dead letters, and calls per second."""

    def __init__(self, transport: Transport, limiter: Limiter) -> None:
        self._transport, self._limiter = transport, limiter

    async def refresh(self) -> None:
        """Find out; what cannot be found out is shown as not a number."""
        await asyncio.gather(self._try(self._lags()), self._try(self._dead()), self._try(self._calls()))

    async def _lags(self) -> None:
        metrics.forget(metrics.CONSUMER_LAG)
        for topic, group in GROUPS.items():
            metrics.CONSUMER_LAG.labels(topic, group).set(await self._transport.lag(topic, group))

    async def _dead(self) -> None:
        metrics.forget(metrics.DLQ_MESSAGE_COUNT)
        metrics.DLQ_MESSAGE_COUNT.set(await self._transport.dead_count())

    async def _calls(self) -> None:
        metrics.forget(metrics.RATE_LIMITER_RPS)
        for usage in (await self._limiter.status()).usage:
            if usage.name == _PER_SECOND:
                metrics.RATE_LIMITER_RPS.set(usage.used)

    async def _try(self, look: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(_WITHIN_S):
                await look
        except (TidegateError, TimeoutError) as error:
            log.warning("metrics.source_failed", source="snapshots", error=str(error) or "no answer in time")
