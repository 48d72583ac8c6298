"""What a message of the trigger queue asks for.

It may be an event of EventBridge, `{"id": "…", "detail": {"schedule": 7}, …}`, or an object of its own,
`{"schedule": 7, "key": "…"}`, as EventBridge Scheduler and people send it; and either may come through SNS. The firing
key is the event's id, else `key`, else the id that SNS or SQS gave the message: the same however often it is delivered.
"""

from typing import Any

import msgspec

from tidegate.core.errors import UNDECODABLE, InvalidArgument
from tidegate.engine.schedules.firings import require_key
from tidegate.engine.sqs.queue import Received

_LARGEST_ID = 2**63 - 1


class Trigger(msgspec.Struct, frozen=True):
    """A schedule that is to fire, once for each key."""

    schedule_id: int
    firing_key: str


def read_trigger(message: Received) -> Trigger:
    """What `message` asks for; raises `InvalidArgument` for what asks for nothing that we know."""
    said, key = _object(message.body), message.id
    if said.get("Type") == "Notification" and isinstance(said.get("Message"), str):
        said, key = _object(said["Message"]), said.get("MessageId", key)
    if isinstance(said.get("detail"), dict):
        return Trigger(_schedule(said["detail"]), _key(said.get("id", key)))
    return Trigger(_schedule(said), _key(said.get("key", key)))


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except UNDECODABLE:
        raise InvalidArgument("body", _size(text), "is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidArgument("body", _size(text), "is not an object")
    return found


def _schedule(said: dict[str, Any]) -> int:
    """Its number; as a text too, since templates make nothing else."""
    value = said.get("schedule")
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
    """Of what nobody knows, no more is told than this: it may be a secret that went astray."""
    return f"{len(text)} characters"
