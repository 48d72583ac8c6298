"""Figures that nobody keeps: they are found out when somebody asks for the metrics, each source by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tidegate.core.errors import Unavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage

log = get_logger(__name__)

WITHIN_S = 2.0
"""How long a source may take; whoever asks for the metrics waits for the slowest."""
_outage = Outage("metrics")


async def compute_gauges(source: str, look: Callable[[], Awaitable[object]], gauges: Sequence[metrics.Gauge]) -> bool:
    """Let `look` set `gauges`, and tell whether it could, which `metrics_source_up` shows too. Never raises.

    Where it cannot, in time or at all, they are not a number, so that no alert compares an old one.
    """
    is_up = metrics.METRICS_SOURCE_UP.labels(source)
    try:
        async with asyncio.timeout(WITHIN_S):
            await look()
    except Exception as error:  # whatever it is, the others are shown
        if isinstance(error, Unavailable):
            _outage.note(error)
        else:
            log.warning("metrics.source_failed", source=source, error=str(error) or type(error).__name__)
        is_up.set(0)
        for gauge in gauges:
            metrics.forget(gauge)
        return False
    is_up.set(1)
    return True
