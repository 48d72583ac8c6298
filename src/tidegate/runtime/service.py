"""What lives long, and how it is kept alive."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from tidegate.core.backoff import DEFECT_PAUSES, Backoff
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import SERVICE_RESTARTS
from tidegate.runtime.outage import Outage, outage_in
from tidegate.runtime.waiting import occurs, only_our_cancellation

log = get_logger(__name__)

_STEADY_S = 10.0
"""A service that stands for so long after an outage has what it needs."""


class Service(Protocol):
    """Runs until it is told to stop."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; then finish what is begun, begin nothing, and return."""
        ...


@dataclass(frozen=True)
class Restarts:
    """How the fallen are started again."""

    backoff: Backoff = DEFECT_PAUSES
    """The pause before each new start."""
    steady_after: timedelta = timedelta(minutes=1)
    """Who stood this long before it fell begins anew at the shortest pause."""


async def keep_running(
    name: str, service: Service, stopping: asyncio.Event, *, restarts: Restarts, may_end: bool = False
) -> bool:
    """Run a service, and run it again whenever it falls, until `stopping` is set. Whether it ended in good order.

    A service that returns without being told to has fallen too, unless it `may_end`. One that meets a server that is
    away or refuses is started again as `patience` has it: that is no defect, and needs no traceback.
    """
    falls, loop, outage = 0, asyncio.get_running_loop(), Outage(name)
    fallen = SERVICE_RESTARTS.labels(name)  # told as 0 from the beginning: an alert sees the first fall as an increase
    while not stopping.is_set():
        started_at = loop.time()
        steady = loop.call_later(_STEADY_S, outage.over)
        try:
            if not outage.lasts:
                log.info("service.started", service=name)
            ended_well, met = await _run_once(name, service, stopping)
        finally:
            steady.cancel()
        if ended_well and (may_end or stopping.is_set()):
            log.info("service.stopped", service=name)
            return True
        if stopping.is_set():
            return False
        stood_for_s = loop.time() - started_at
        falls = 1 if stood_for_s >= restarts.steady_after.total_seconds() else falls + 1
        if met is not None:
            await outage.pause(met, falls, stopping=stopping)
            continue
        fallen.inc()
        await occurs(stopping, within_s=restarts.backoff.delay(falls).total_seconds())
    return True


async def _run_once(name: str, service: Service, stopping: asyncio.Event) -> tuple[bool, Unavailable | None]:
    """Whether it ended without an error, and the outage that it met."""
    try:
        with only_our_cancellation():
            await service.run(stopping)
    except Exception as error:
        met = outage_in(error)
        if met is None:
            log.exception("service.failed", service=name)
        return False, met
    return True, None
