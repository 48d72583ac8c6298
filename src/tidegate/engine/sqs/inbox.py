"""Fires schedules on messages from SQS.

A message is an event of EventBridge, `{"id": "…", "detail": {"schedule": 7}, …}`, or a plain object,
`{"schedule": 7, "key": "…"}`, as EventBridge Scheduler and users send it; both may arrive through SNS. The firing key
is the event's id, else `key`, else the id that SNS or SQS gave the message: it is the same at each delivery.

A message is deleted only after its firing is committed. SQS may deliver it again before or after that; the same firing
key then finds the same firing, so nothing starts twice. The outcomes of a message:

    fired        committed (now, or earlier with the same key), then deleted
    refused      the schedule is unknown or paused: a retry would not help, so it is deleted, logged and counted
    malformed    the content is not understood: likewise
    held         a server is unavailable: it is hidden again at half time until the server is back, so an outage uses
                 none of the receives that a redrive policy allows
    failed       by a defect: it is left to be delivered again, up to `trigger_attempts` times
    process died SQS delivers it again when its visibility timeout ends
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from tidegate.core.arguments import require_positive
from tidegate.core.errors import UNDECODABLE, ContractBroken, InvalidArgument, TidegateError
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import metrics
from tidegate.engine.schedules.firings import require_key
from tidegate.engine.sqs.queue import LARGEST_BATCH, LONGEST_WAIT_S, Queue, Received
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, unless

_LARGEST_ID = 2**63 - 1


class ScheduleTrigger(msgspec.Struct, frozen=True):
    """A request to fire a schedule, once per firing key."""

    schedule_id: int
    firing_key: str


def read_trigger(message: Received) -> ScheduleTrigger:
    """Decode a message; raises `InvalidArgument` if it requests nothing known."""
    fields, key = _object(message.body), message.id
    if fields.get("Type") == "Notification" and isinstance(fields.get("Message"), str):
        fields, key = _object(fields["Message"]), fields.get("MessageId", key)
    if isinstance(fields.get("detail"), dict):
        return ScheduleTrigger(_schedule(fields["detail"]), _key(fields.get("id", key)))
    return ScheduleTrigger(_schedule(fields), _key(fields.get("key", key)))


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except UNDECODABLE:
        raise InvalidArgument("body", _size(text), "is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidArgument("body", _size(text), "is not an object")
    return found


def _schedule(fields: dict[str, Any]) -> int:
    """The schedule's number, also written as text, since templates of EventBridge only produce text."""
    value = fields.get("schedule")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _LARGEST_ID:
        raise InvalidArgument("schedule", str(value)[:40], "must be the number of a schedule")
    return value


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument("key", str(value)[:40], "must be a text")
    return require_key(value)


def _size(text: str) -> str:
    """Describe an unknown text by its size only, because it may be a secret that was sent by mistake."""
    return f"{len(text)} characters"


log = get_logger(__name__)

T = TypeVar("T")

Fire = Callable[[int, str], Awaitable[object]]
"""Fires a schedule, given its number and a firing key, at most once per key. Raises a `TidegateError` for a schedule
that cannot be fired, and `Unavailable` or `ServerRefused` if a server prevents it."""


class TriggerInbox:
    """Service that receives triggers and fires schedules. Any number of processes can run one."""

    def __init__(self, queue: Queue, fire: Fire, *, attempts: int = 10) -> None:
        require_positive("attempts", attempts)
        self._queue, self._fire, self._attempts = queue, fire, attempts
        self._outage = Outage("sqs.triggers")

    async def run(self, stopping: asyncio.Event) -> None:
        """Fire requested schedules until told to stop. SQS delivers unfinished messages again later."""
        await unless(stopping, self._fire_all())

    async def _fire_all(self) -> None:
        while True:
            received = await self._outage.retry(partial(self._queue.receive, LARGEST_BATCH, LONGEST_WAIT_S))
            async with self._kept(received) as held:
                for message in received:
                    if await self._is_done(message):
                        await self._queue.delete([message.receipt])
                    # Deleted, or left to be delivered again: it need not be hidden any longer.
                    del held[message.id]

    async def _is_done(self, message: Received) -> bool:
        """Whether this message is finished and can be deleted."""
        try:
            trigger = read_trigger(message)
        except InvalidArgument as error:
            log.warning("sqs.trigger_malformed", message=message.id, error=str(error))
            return _count_trigger("malformed")
        try:
            await self._outage.retry(partial(self._fire, trigger.schedule_id, trigger.firing_key))
        except ContractBroken:
            # A defect of this program, although it is a `TidegateError`: it says nothing about the trigger.
            return self._count_failure(message, trigger)
        except TidegateError as error:
            log.warning("sqs.trigger_refused", **_facts(message, trigger), error=str(error))
            return _count_trigger("refused")
        except Exception:
            return self._count_failure(message, trigger)
        return _count_trigger("fired")

    def _count_failure(self, message: Received, trigger: ScheduleTrigger) -> bool:
        """Count a trigger that failed by a defect; True once its attempts are used up."""
        if message.receives >= self._attempts:
            log.exception("sqs.trigger_given_up", **_facts(message, trigger))
            return _count_trigger("given_up")
        log.exception("sqs.trigger_failed", **_facts(message, trigger))
        _count_trigger("failed")
        return False

    @asynccontextmanager
    async def _kept(self, received: list[Received]) -> AsyncGenerator[dict[str, str]]:
        """Keep received messages hidden while they are processed; yields their receipts by message id."""
        held = {message.id: message.receipt for message in received}
        hiding = asyncio.create_task(self._hide(held), name="hide triggers")
        try:
            yield held
        finally:
            await end(hiding)

    async def _hide(self, held: dict[str, str]) -> None:
        while held:
            await asyncio.sleep(self._queue.visibility.total_seconds() / 2)
            await self._queue.hide(list(held.values()))


def _facts(message: Received, trigger: ScheduleTrigger) -> dict[str, object]:
    return {
        "message": message.id,
        "schedule": trigger.schedule_id,
        "key": trigger.firing_key,
        "receives": message.receives,
    }


def _count_trigger(outcome: str) -> bool:
    """Count a trigger by its outcome. Returns True, for callers that report the message as finished."""
    metrics.SQS_TRIGGERS.labels(outcome).inc()
    return True
