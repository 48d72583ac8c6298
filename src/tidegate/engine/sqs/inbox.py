"""Begins runs of schedules at messages from SQS.

A message is deleted only after the firing is committed. SQS may deliver it again, before that or after: then the same
firing key finds the same firing, and nothing begins twice. What can happen to one message:

    fired        committed (or it was before, by the same key), then deleted
    refused      the schedule is unknown or paused: another try would not help, so it is deleted, told and counted
    malformed    it asks for nothing that we know: likewise
    in hand      a server is away: it is hidden anew, at half time, until the server is back; so an outage costs it none
                 of the receives that a redrive policy allows
    failed       by a defect: it is left to be shown again, until it was received `trigger_attempts` times
    we die       it is shown to another when its time is over
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from tidegate.core.arguments import require_positive
from tidegate.core.errors import ContractBroken, InvalidArgument, TidegateError
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.sqs.queue import LARGEST_BATCH, LONGEST_WAIT_S, Queue, Received
from tidegate.engine.sqs.triggers import Trigger, read_trigger
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, unless

log = get_logger(__name__)

T = TypeVar("T")

Fire = Callable[[int, str], Awaitable[object]]
"""Fires a schedule, given its number and a firing key, at most once for each key; raises a `TidegateError` for one that
cannot be fired, and `Unavailable` or `ServerRefused` where only a server keeps it from being."""


class TriggerInbox:
    """A service. Any number of processes may have one."""

    def __init__(self, queue: Queue, fire: Fire, *, attempts: int = 10) -> None:
        require_positive("attempts", attempts)
        self._queue, self._fire, self._attempts = queue, fire, attempts
        self._outage = Outage("sqs.triggers")

    async def run(self, stopping: asyncio.Event) -> None:
        """Fire what is asked for until told to stop. What is in hand then is shown to another in due time."""
        await unless(stopping, self._fire_all())

    async def _fire_all(self) -> None:
        while True:
            received = await self._outage.retry(partial(self._queue.receive, LARGEST_BATCH, LONGEST_WAIT_S))
            async with self._kept(received) as in_hand:
                for message in received:
                    if await self._is_done(message):
                        await self._queue.delete([message.receipt])
                    del in_hand[message.id]

    async def _is_done(self, message: Received) -> bool:
        """Whether this message needs nobody any more."""
        try:
            trigger = read_trigger(message)
        except InvalidArgument as error:
            log.warning("sqs.trigger_malformed", message=message.id, error=str(error))
            return _counted("malformed")
        try:
            await self._outage.retry(partial(self._fire, trigger.schedule_id, trigger.firing_key))
        except ContractBroken:
            return self._has_failed(message, trigger)
        except TidegateError as error:
            log.warning("sqs.trigger_refused", **_facts(message, trigger), error=str(error))
            return _counted("refused")
        except Exception:
            return self._has_failed(message, trigger)
        return _counted("fired")

    def _has_failed(self, message: Received, trigger: Trigger) -> bool:
        """Whether a trigger that met a defect of ours is given up."""
        if message.receives >= self._attempts:
            log.exception("sqs.trigger_given_up", **_facts(message, trigger))
            return _counted("given_up")
        log.exception("sqs.trigger_failed", **_facts(message, trigger))
        _counted("failed")
        return False

    @asynccontextmanager
    async def _kept(self, received: list[Received]) -> AsyncGenerator[dict[str, str]]:
        """Hide what is in hand from others for as long as it takes: the receipts of messages, by their ids."""
        in_hand = {message.id: message.receipt for message in received}
        hiding = asyncio.create_task(self._hide(in_hand), name="hide triggers")
        try:
            yield in_hand
        finally:
            await end(hiding)

    async def _hide(self, in_hand: dict[str, str]) -> None:
        while in_hand:
            await asyncio.sleep(self._queue.visibility.total_seconds() / 2)
            await self._queue.hide(list(in_hand.values()))


def _facts(message: Received, trigger: Trigger) -> dict[str, object]:
    return {
        "message": message.id,
        "schedule": trigger.schedule_id,
        "key": trigger.firing_key,
        "receives": message.receives,
    }


def _counted(outcome: str) -> bool:
    metrics.SQS_TRIGGERS.labels(outcome).inc()
    return True
