"""The protocol of services, and `keep_running`, which restarts a service that failed."""

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
"""An outage is over for a service that runs this long without meeting it again."""


class Service(Protocol):
    """A long-running task of a process.

    Example:
        class Cleanup:
            async def run(self, stopping: asyncio.Event) -> None:
                await stopping.wait()

        process = build_process(context, services={"cleanup": Cleanup()})
    """

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; then finish the work in progress, start no more, and return."""
        ...


@dataclass(frozen=True)
class Restarts:
    """How failed services are restarted."""

    backoff: Backoff = DEFECT_PAUSES
    """Pauses before restarts."""
    steady_after: timedelta = timedelta(minutes=1)
    """A service that ran this long before it failed is restarted after the shortest pause."""


async def keep_running(
    name: str, service: Service, stopping: asyncio.Event, *, restarts: Restarts, may_end: bool = False
) -> bool:
    """Run a service and restart it after failures until `stopping` is set. Returns whether it ended without an error.

    A service that returns before `stopping` is set has failed too, unless it `may_end`. A service that meets a server
    which is unavailable or refuses is restarted by the policy of `outage`; that is no defect and logs no traceback.
    """
    failures, loop, outage = 0, asyncio.get_running_loop(), Outage(name)
    restarted = SERVICE_RESTARTS.labels(name)  # exported as 0 from the beginning, so that `increase()` sees the first
    while not stopping.is_set():
        started_at = loop.time()
        # A service has no single success to report, so running for a while counts as one.
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
        ran_for_s = loop.time() - started_at
        failures = 1 if ran_for_s >= restarts.steady_after.total_seconds() else failures + 1
        if met is not None:
            await outage.pause(met, failures, stopping=stopping)
            continue
        # Only defects are counted; outages of servers are not.
        restarted.inc()
        await occurs(stopping, within_s=restarts.backoff.delay(failures).total_seconds())
    return True


async def _run_once(name: str, service: Service, stopping: asyncio.Event) -> tuple[bool, Unavailable | None]:
    """Returns whether the service ended without an error, and the outage that it met."""
    try:
        with only_our_cancellation():
            await service.run(stopping)
    except Exception as error:
        met = outage_in(error)
        if met is None:
            log.exception("service.failed", service=name)
        return False, met
    return True, None
