"""Decodes messages of the trigger queue.

A message is an event of EventBridge, `{"id": "…", "detail": {"schedule": 7}, …}`, or a plain object,
`{"schedule": 7, "key": "…"}`, as EventBridge Scheduler and users send it; both may arrive through SNS. The firing key
is the event's id, else `key`, else the id that SNS or SQS gave the message: it is the same at each delivery.
"""

from typing import Any

import msgspec

from tidegate.core.errors import UNDECODABLE, InvalidArgument
from tidegate.engine.schedules.firings import require_key
from tidegate.engine.sqs.queue import Received

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
