"""Sleeps until the next thing is due, does it, and sleeps again.

The server ends a blocking read up to 100 ms late, since it looks at timeouts only now and then; so the due time is kept
by a timer of this process, while a listener blocks at the wakeup for news of something earlier. Each source is kept
by a task of its own: one that fails or is slow delays no other.
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
"""How long one blocking read lasts: short enough to notice a connection that died in silence."""
_LONGEST_SLEEP_S = 900.0
"""The second net, should the server's clock be set forward or a ring perish with the process that took it."""
_LAST_RING_WITHIN_S = 1.0


class DueSource(Protocol):
    """Something that has to be done at certain times."""

    async def fire(self) -> int | None:
        """Do what is due now. Return in how many ms the next is due (0: more is due already), None if nothing is.

        Must be harmless when nothing is due, and when two processes do it at once.
        """
        ...


class Timekeeper:
    """Keeps the time of the sources that ring one wakeup; a duty of the leader.

    A unit with a wakeup of its own gets a timekeeper of its own. Once its task is cancelled or told to stop, nothing
    more is fired.
    """

    def __init__(
        self,
        wakeup: Wakeup,
        sources: Sequence[DueSource],
        *,
        on_begin: Callable[[], object] = lambda: None,
        backoff: Backoff | None = None,
    ) -> None:
        """`on_begin` is called each time it begins to keep the time."""
        if not sources:
            raise InvalidArgument("sources", sources, "there is nothing to keep the time of")
        self._wakeup = wakeup
        self._sources, self._on_begin = tuple(sources), on_begin
        self._backoff = backoff or DEFECT_PAUSES

    async def run(self, stopping: asyncio.Event) -> None:
        """Fire what is due, until told to stop."""
        self._on_begin()
        bells = [asyncio.Event() for _ in self._sources]
        await self._wakeup.claim()
        try:
            async with asyncio.TaskGroup() as tasks:
                listener = tasks.create_task(self._listen(bells))
                for source, bell in zip(self._sources, bells, strict=True):
                    tasks.create_task(self._keep(source, bell, stopping))
                await stopping.wait()
                _ring_all(bells)
                listener.cancel()
        finally:
            await self._ring_for_successor()

    async def _listen(self, bells: Sequence[asyncio.Event]) -> None:
        while True:
            with only_our_cancellation():
                rung = await self._wakeup.wait(_LISTEN_S)
            if rung:
                _ring_all(bells)

    async def _keep(self, source: DueSource, bell: asyncio.Event, stopping: asyncio.Event) -> None:
        failures, outage = 0, Outage(f"timekeeper.{type(source).__name__}")
        while not stopping.is_set():
            bell.clear()  # before firing: what rings from here on may not be seen by it
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
                await _sleep(bell, next_in_ms)

    async def _ring_for_successor(self) -> None:
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_LAST_RING_WITHIN_S):
                await self._wakeup.pass_on()


def _ring_all(bells: Sequence[asyncio.Event]) -> None:
    for bell in bells:
        bell.set()


async def _sleep(bell: asyncio.Event, next_in_ms: int | None) -> None:
    """Until the next is due or somebody rings."""
    if next_in_ms == 0:
        await asyncio.sleep(0)  # a source that always has more must leave the others their turn
        return
    began_ms = monotonic_ms()
    planned_s = _LONGEST_SLEEP_S if next_in_ms is None else next_in_ms / 1000
    await occurs(bell, within_s=min(planned_s, _LONGEST_SLEEP_S))
    SCHEDULER_SLEEP_DURATION.observe((monotonic_ms() - began_ms) / 1000)


def _report(source: DueSource, error: Exception, pause: timedelta) -> None:
    # A defect of the source, which only a traceback finds.
    log.warning(
        "timekeeper.source_failed",
        source=repr(source),
        error=str(error),
        pause_ms=milliseconds(pause),
        exc_info=error,
    )
