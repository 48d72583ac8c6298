"""What travels between those who want a snapshot refreshed and those who do it.

The schema has a version `major.minor`. A newer minor one adds fields: they are kept, and written again when the event
is passed on. A different major one cannot be understood, and goes to the dead letters.
"""

from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from tidegate.core.errors import UNDECODABLE, TidegateError
from tidegate.core.priority import Priority
from tidegate.systems.snapshots.model import SnapshotSubject

SCHEMA_VERSION = "1.1"
_MAJOR = SCHEMA_VERSION.partition(".")[0]
_HIGHEST_VERSION = 2**52
"""Beyond it a server's numbers are no longer exact."""
_LARGEST_EVENT = 256 * 1024
_LONGEST_TEXT = 40 * 1024
"""Of bytes; a JSON text has up to six for each of them."""


class Reason(StrEnum):
    """Why somebody wants it."""

    CACHE_MISS = "CACHE_MISS"
    STALE = "STALE"
    PREFETCH = "PREFETCH"
    USER_REQUEST = "USER_REQUEST"


class UnknownSchema(TidegateError):
    """The bytes are no event that this version of the software understands."""


class RefreshEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wish that a subject be refreshed."""

    event_id: str
    subject_id: str
    """See `SnapshotSubject.id`."""
    priority: Priority
    reason: Reason
    requested_at: datetime
    version: Annotated[int, msgspec.Meta(ge=1, le=_HIGHEST_VERSION)]
    """Given by the coalescer: an event is obsolete when one with a higher version was published."""
    correlation_id: str | None = None
    upstream_id: str | None = None
    schema_version: str = SCHEMA_VERSION
    unknown: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name="unknown")
    """Fields of a newer minor version."""

    @property
    def subject(self) -> SnapshotSubject:
        """Whom it is about."""
        return SnapshotSubject.from_id(self.subject_id)

    def encode_without_version(self) -> str:
        """The same up to the version, which the server gives: what is missing is its number, and a closing brace."""
        known = msgspec.to_builtins(self)
        known["priority"] = self.priority.name
        fields = {name: value for name, value in known.items() if name not in ("version", "unknown")}
        return msgspec.json.encode(known["unknown"] | fields)[:-1].decode() + ',"version":'

    def encode(self) -> bytes:
        """As JSON; unknown fields stand beside the known, as they came."""
        known = msgspec.to_builtins(self)
        known["priority"] = self.priority.name
        unknown = known.pop("unknown")
        return msgspec.json.encode(unknown | known)

    @classmethod
    def decode(cls, encoded: bytes) -> "RefreshEvent":
        """The event in these bytes; `UnknownSchema` if there is none that we understand."""
        try:
            fields = msgspec.json.decode(encoded, type=dict[str, Any])
        except UNDECODABLE as error:
            raise UnknownSchema(f"an event that is no JSON object: {error}") from None
        try:
            return cls._of(fields)
        except UNDECODABLE as error:
            raise UnknownSchema(f"an event that cannot be read: {error}") from None

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> "RefreshEvent":
        version = str(fields.get("schemaVersion", ""))
        if version.partition(".")[0] != _MAJOR:
            raise UnknownSchema(
                f"an event of schema {version[:20] or 'unknown'!r}; this version understands {_MAJOR}.x"
            )
        unknown = {name: fields.pop(name) for name in fields.keys() - _KNOWN}
        fields["priority"] = str(fields.get("priority", "")).lower()
        return msgspec.convert(fields | {"unknown": unknown}, cls)


_KNOWN = frozenset(RefreshEvent.__struct_encode_fields__) - {"unknown"}


class FailureReason(StrEnum):
    """Why an event will not be tried again by itself."""

    UPSTREAM_4XX = "UPSTREAM_4XX"
    UPSTREAM_5XX = "UPSTREAM_5XX"
    PARSE_ERROR = "PARSE_ERROR"
    WRONG_SUBJECT = "WRONG_SUBJECT"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    WORKER_CRASHED = "WORKER_CRASHED"


class FailedRefresh(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An event that could not be served, with everything needed to understand it and to send it again."""

    event: msgspec.Raw
    """The original: see `as_json`."""
    subject_id: str
    reason: FailureReason
    message: str
    trace: str | None = None
    retries: int = 0
    failed_at: datetime
    worker: str

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, encoded: bytes) -> "FailedRefresh":
        """The dead letter in these bytes; `UnknownSchema` if there is none that we understand."""
        try:
            found = msgspec.json.decode(encoded, type=cls)
            msgspec.json.decode(found.event)  # which was only walked over
        except UNDECODABLE as error:
            raise UnknownSchema(f"a dead letter that cannot be read: {error}") from None
        return found


def as_json(event: bytes) -> bytes:
    """An event as it came; where that is no JSON, or more than a letter may hold, a JSON text of its beginning."""
    if len(event) <= _LARGEST_EVENT:
        with suppress(*UNDECODABLE):
            msgspec.json.decode(event)
            return event
    text = event[:_LONGEST_TEXT].decode(errors="backslashreplace")
    if len(event) > _LONGEST_TEXT:
        text += f"… (cut: it had {len(event)} bytes)"
    return msgspec.json.encode(text)
