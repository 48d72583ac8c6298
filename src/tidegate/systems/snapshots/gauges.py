"""Figures of the whole deployment, found out when somebody asks for the metrics."""

import asyncio

from tidegate.core.telemetry import metrics
from tidegate.primitives.limiter import Limiter
from tidegate.runtime.scrape_gauges import compute_gauges
from tidegate.systems.snapshots.transport import GROUPS, Transport

_PER_SECOND = "second"
"""The rule of the limiter that counts the calls of a second."""


class SnapshotGauges:
    """Lag of the topics, dead letters, and calls per second."""

    def __init__(self, transport: Transport, limiter: Limiter) -> None:
        self._transport, self._limiter = transport, limiter

    async def refresh(self) -> None:
        """Find out; what cannot be found out is shown as not a number."""
        await asyncio.gather(
            compute_gauges("snapshot lag", self._lags, [metrics.CONSUMER_LAG]),
            compute_gauges("snapshot letters", self._dead, [metrics.DLQ_MESSAGE_COUNT]),
            compute_gauges("snapshot calls", self._calls, [metrics.RATE_LIMITER_RPS]),
        )

    async def _lags(self) -> None:
        for topic, group in GROUPS.items():
            metrics.CONSUMER_LAG.labels(topic, group).set(await self._transport.lag(topic, group))

    async def _dead(self) -> None:
        metrics.DLQ_MESSAGE_COUNT.set(await self._transport.dead_count())

    async def _calls(self) -> None:
        for usage in (await self._limiter.status()).usage:
            if usage.name == _PER_SECOND:
                metrics.RATE_LIMITER_RPS.set(usage.used)
