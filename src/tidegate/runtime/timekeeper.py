"""Calls due sources at their due times. A service of the leader.

The server ends a blocking read up to 100 ms late, because it checks timeouts at intervals. So the due time is kept by a
timer of this process, while a listener blocks at the wake-up for earlier due times. Each source has its own task: a
slow or failing source delays no other.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from tidegate.core.backoff import DEFECT_PAUSES, Backoff
from tidegate.core.clock import milliseconds, monotonic_ms
from tidegate.core.errors import InvalidArgument, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import SCHEDULER_SLEEP_DURATION
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import occurs, only_our_cancellation

log = get_logger(__name__)

_LISTEN_S = 120.0
"""Duration of one blocking read: short enough to notice a connection that was lost without an error."""
_LONGEST_SLEEP_S = 900.0
"""Sources are called after this long in any case: the server's clock may have been set forward, or a wake-up may have
been lost with the process that took it."""
_PASS_ON_WITHIN_S = 1.0


class DueSource(Protocol):
    """Work that is due at certain times."""

    async def fire(self) -> int | None:
        """Do what is due now. Returns in how many ms to call again (0: more is due already), None if nothing is due.

        Must be harmless when nothing is due, and when two processes call it at once.
        """
        ...


class Timekeeper:
    """Calls the sources that share one wake-up.

    Each unit with its own wake-up has its own timekeeper. After its task is cancelled or stopped, no source is called.
    """

    def __init__(
        self,
        wakeup: Wakeup,
        sources: Sequence[DueSource],
        *,
        on_begin: Callable[[], object] = lambda: None,
        backoff: Backoff | None = None,
    ) -> None:
        """`on_begin` is called each time the timekeeper starts."""
        if not sources:
            raise InvalidArgument("sources", sources, "there is no source to call")
        self._wakeup = wakeup
        self._sources, self._on_begin = tuple(sources), on_begin
        self._backoff = backoff or DEFECT_PAUSES

    async def run(self, stopping: asyncio.Event) -> None:
        """Call sources when they are due, until `stopping` is set."""
        self._on_begin()
        wakeups = [asyncio.Event() for _ in self._sources]
        # A former leader that is frozen may still be blocked at the wake-up, and would take the next signal.
        await self._wakeup.claim()
        try:
            async with asyncio.TaskGroup() as tasks:
                listener = tasks.create_task(self._listen(wakeups))
                for source, woken in zip(self._sources, wakeups, strict=True):
                    tasks.create_task(self._serve(source, woken, stopping))
                # An error of the listener cancels the sources too, and the service is restarted.
                await stopping.wait()
                # Ends the sleep of each source, which then sees that it has to stop.
                _set_all(wakeups)
                listener.cancel()
        finally:
            # The wait that was cancelled may have taken a signal.
            await self._wake_successor()

    async def _listen(self, wakeups: Sequence[asyncio.Event]) -> None:
        while True:
            with only_our_cancellation():
                woken = await self._wakeup.wait(_LISTEN_S)
            if woken:
                _set_all(wakeups)

    async def _serve(self, source: DueSource, woken: asyncio.Event, stopping: asyncio.Event) -> None:
        """Fire one source whenever it is due or woken, until the stop; repeat failures with growing pauses."""
        failures, outage = 0, Outage(f"timekeeper.{type(source).__name__}")
        while not stopping.is_set():
            woken.clear()  # before the call, which may not see what a later wake-up is about
            try:
                with only_our_cancellation():
                    next_in_ms = await source.fire()
            except Unavailable as error:
                failures += 1
                await outage.pause(error, failures, stopping=stopping)
            except Exception as error:
                failures += 1
                pause = self._backoff.delay(failures)
                _report(source, error, pause)
                await occurs(stopping, within_s=pause.total_seconds())
            else:
                failures = 0
                outage.over()
                await _sleep(woken, next_in_ms)

    async def _wake_successor(self) -> None:
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_PASS_ON_WITHIN_S):
                await self._wakeup.pass_on()


def _set_all(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        event.set()


async def _sleep(woken: asyncio.Event, next_in_ms: int | None) -> None:
    """Sleep until the next due time or a wake-up."""
    if next_in_ms == 0:
        await asyncio.sleep(0)  # a source that always has more to do must let others run
        return
    began_ms = monotonic_ms()
    planned_s = _LONGEST_SLEEP_S if next_in_ms is None else next_in_ms / 1000
    await occurs(woken, within_s=min(planned_s, _LONGEST_SLEEP_S))
    SCHEDULER_SLEEP_DURATION.observe((monotonic_ms() - began_ms) / 1000)


def _report(source: DueSource, error: Exception, pause: timedelta) -> None:
    # A defect of the source: log the traceback.
    log.warning(
        "timekeeper.source_failed",
        source=repr(source),
        error=str(error),
        pause_ms=milliseconds(pause),
        exc_info=error,
    )
