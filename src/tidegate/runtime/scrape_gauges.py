"""Gauges that are computed at scrape time, each source independently."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tidegate.core.errors import Unavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage

log = get_logger(__name__)

WITHIN_S = 2.0
"""Time limit of a source. A scrape waits for the slowest one."""
_outage = Outage("metrics")


async def compute_gauges(source: str, read: Callable[[], Awaitable[object]], gauges: Sequence[metrics.Gauge]) -> bool:
    """Await `read`, which sets `gauges`. Returns whether it succeeded, as `metrics_source_up` shows. Never raises.

    If it fails or takes too long, the gauges become NaN, so that no alert compares an outdated value.
    """
    is_up = metrics.METRICS_SOURCE_UP.labels(source)
    try:
        async with asyncio.timeout(WITHIN_S):
            await read()
    except Exception as error:  # other sources are exported all the same
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
