"""What travels between those who want a snapshot refreshed and those who do it.

The schema has a version `major.minor`. A newer minor one adds fields: they are kept, and written again when the event
is passed on. A different major one cannot be understood, and goes to the dead letters.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from tidegate.kernel.errors import TidegateError
from tidegate.kernel.priority import Priority
from tidegate.snapshots.subject import Subject

SCHEMA_VERSION = "1.1"
_MAJOR = SCHEMA_VERSION.partition(".")[0]


class Reason(StrEnum):
    """Why somebody wants it."""

    CACHE_MISS = "CACHE_MISS"
    STALE = "STALE"
    PREFETCH = "PREFETCH"
    USER_REQUEST = "USER_REQUEST"


class UnknownSchema(TidegateError):
    """The bytes are no event that this version of the software understands."""


class UpdateEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wish that a subject be refreshed."""

    event_id: str
    subject_id: str
    """See `Subject.id`."""
    priority: Priority
    reason: Reason
    requested_at: datetime
    version: int
    """Given by the coalescer: an event with a lower one than the subject's newest is obsolete."""
    correlation_id: str | None = None
    upstream_id: str | None = None
    schema_version: str = SCHEMA_VERSION
    unknown: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name="unknown")
    """Fields of a newer minor version."""

    @property
    def subject(self) -> Subject:
        """Whom it is about."""
        return Subject.from_id(self.subject_id)

    def encode(self) -> bytes:
        """As JSON; unknown fields stand beside the known, as they came."""
        known = msgspec.to_builtins(self)
        known["priority"] = self.priority.name
        unknown = known.pop("unknown")
        return msgspec.json.encode(unknown | known)

    @classmethod
    def decode(cls, encoded: bytes) -> "UpdateEvent":
        """The event in these bytes; `UnknownSchema` if there is none that we understand."""
        try:
            fields = msgspec.json.decode(encoded, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise UnknownSchema(f"an event that is no JSON object: {error}") from None
        version = str(fields.get("schemaVersion", ""))
        if version.partition(".")[0] != _MAJOR:
            raise UnknownSchema(
                f"an event of schema {version[:20] or 'unknown'!r}; this version understands {_MAJOR}.x"
            )
        unknown = {name: fields.pop(name) for name in fields.keys() - _KNOWN}
        fields["priority"] = str(fields.get("priority", "")).lower()
        try:
            return msgspec.convert(fields | {"unknown": unknown}, cls)
        except msgspec.ValidationError as error:
            raise UnknownSchema(f"an event that cannot be read: {error}") from None


_KNOWN = frozenset(UpdateEvent.__struct_encode_fields__) - {"unknown"}


class DeathReason(StrEnum):
    """Why an event will not be tried again by itself."""

    UPSTREAM_4XX = "UPSTREAM_4XX"
    UPSTREAM_5XX = "UPSTREAM_5XX"
    PARSE_ERROR = "PARSE_ERROR"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    WORKER_CRASHED = "WORKER_CRASHED"


class DeadUpdate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An event that could not be served, with everything needed to understand it and to send it again."""

    event: msgspec.Raw
    """The original, as it came: JSON, or a JSON text of bytes that are none."""
    subject_id: str
    reason: DeathReason
    message: str
    trace: str | None = None
    retries: int = 0
    failed_at: datetime
    worker: str

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, encoded: bytes) -> "DeadUpdate":
        """The dead letter in these bytes."""
        return msgspec.json.decode(encoded, type=cls)
