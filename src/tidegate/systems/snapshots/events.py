"""Refresh events and dead letters, their JSON form, and the spans of refreshes.

The schema has a version `major.minor`. A newer minor version adds fields, which are kept and written again when the
event is passed on. An event with another major version cannot be read and becomes a dead letter.

An event carries its trace context as its correlation id:

    request refresh          in the process that requests it, as child of the caller's span or as a new trace
      refresh {kind}         in the process that handles the event
        call, write
"""

import sys
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tidegate.core.errors import UNDECODABLE, TidegateError
from tidegate.core.priority import Priority
from tidegate.core.telemetry import traces
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.systems.snapshots.model import SnapshotSubject

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

SCHEMA_VERSION = "1.1"
_MAJOR = SCHEMA_VERSION.partition(".")[0]
_HIGHEST_VERSION = 2**52
"""The largest version: numbers of the Valkey server are exact up to it."""
_LARGEST_EVENT = 256 * 1024
_LONGEST_TEXT = 40 * 1024
"""Bytes of an unreadable event that are kept; as a JSON string each can take six bytes."""
_LONGEST_SUBJECT = 640
"""More than a valid subject id has."""
_LONGEST_MESSAGE = 2000
_LONGEST_TRACE = 8000
_MARGIN = 4


class Reason(StrEnum):
    """Why a refresh was requested."""

    CACHE_MISS = "CACHE_MISS"
    STALE = "STALE"
    PREFETCH = "PREFETCH"
    USER_REQUEST = "USER_REQUEST"


class UnknownSchema(TidegateError):
    """The message is not an event, or one of a schema that this version does not support."""


class RefreshEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The request to refresh a subject, as it is published."""

    event_id: str
    subject_id: str
    """See `SnapshotSubject.id`."""
    priority: Priority
    reason: Reason
    requested_at: datetime
    version: Annotated[int, msgspec.Meta(ge=1, le=_HIGHEST_VERSION)]
    """Assigned by the coalescer. An event is obsolete when one with a higher version was published."""
    correlation_id: str | None = None
    upstream_id: str | None = None
    schema_version: str = SCHEMA_VERSION
    unknown: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name="unknown")
    """Fields that a newer minor version added."""

    @property
    def subject(self) -> SnapshotSubject:
        """The subject to refresh."""
        return SnapshotSubject.from_id(self.subject_id)

    def encode_without_version(self) -> str:
        """Encode up to the version, which a script on the server appends with the closing brace."""
        known = msgspec.to_builtins(self)
        known["priority"] = self.priority.name
        fields = {name: value for name, value in known.items() if name not in ("version", "unknown")}
        # The version is only known to the script that takes the lock. It completes the JSON text on the server.
        return msgspec.json.encode(known["unknown"] | fields)[:-1].decode() + ',"version":'

    def encode(self) -> bytes:
        """Encode as JSON, with unknown fields unchanged."""
        known = msgspec.to_builtins(self)
        known["priority"] = self.priority.name
        unknown = known.pop("unknown")
        # Known fields win: a newer sender cannot replace them by an unknown field of the same name.
        return msgspec.json.encode(unknown | known)

    @classmethod
    def decode(cls, encoded: bytes) -> "RefreshEvent":
        """Decode an event; raises `UnknownSchema`."""
        try:
            fields = msgspec.json.decode(encoded, type=dict[str, Any])
        except UNDECODABLE as error:
            raise UnknownSchema(f"the event is not a JSON object: {error}") from None
        try:
            return cls._of(fields)
        except UNDECODABLE as error:
            raise UnknownSchema(f"the event cannot be read: {error}") from None

    @classmethod
    def _of(cls, fields: dict[str, Any]) -> "RefreshEvent":
        version = str(fields.get("schemaVersion", ""))
        if version.partition(".")[0] != _MAJOR:
            raise UnknownSchema(f"the event has schema {version[:20] or 'unknown'!r}; this version supports {_MAJOR}.x")
        # Fields of a newer minor version are kept, so that a replay by this version does not lose them.
        unknown = {name: fields.pop(name) for name in fields.keys() - _KNOWN}
        fields["priority"] = str(fields.get("priority", "")).lower()
        return msgspec.convert(fields | {"unknown": unknown}, cls)


_KNOWN = frozenset(RefreshEvent.__struct_encode_fields__) - {"unknown"}


class FailureReason(StrEnum):
    """Why a refresh failed permanently."""

    UPSTREAM_4XX = "UPSTREAM_4XX"
    UPSTREAM_5XX = "UPSTREAM_5XX"
    PARSE_ERROR = "PARSE_ERROR"
    WRONG_SUBJECT = "WRONG_SUBJECT"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    WORKER_CRASHED = "WORKER_CRASHED"


class FailedRefresh(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A refresh that failed permanently: the event and why it failed. The value of a dead letter."""

    event: msgspec.Raw
    """The original event; see `as_json`."""
    subject_id: str
    reason: FailureReason
    message: str
    trace: str | None = None
    retries: int = 0
    failed_at: datetime
    worker: str

    @classmethod
    def of(
        cls,
        *,
        event: bytes,
        subject_id: str,
        reason: FailureReason,
        message: str,
        trace: str | None,
        retries: int,
        failed_at: datetime,
        worker: str,
    ) -> "FailedRefresh":
        """Build a dead letter without the secrets that an upstream's message may contain.

        All fields are bounded: a dead letter that is too large for the transport could never be published, and its
        event would be delivered again forever.
        """
        return cls(
            event=msgspec.Raw(as_json(event)),
            subject_id=subject_id[:_LONGEST_SUBJECT],
            reason=reason,
            # Cut before the search for secrets, which would take long in megabytes.
            message=fit_to_keep(message[: _MARGIN * _LONGEST_MESSAGE], most=_LONGEST_MESSAGE),
            trace=None if trace is None else _end_of(trace),
            retries=retries,
            failed_at=failed_at,
            worker=worker,
        )

    def encode(self) -> bytes:
        """Encode the dead letter as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, encoded: bytes) -> "FailedRefresh":
        """Decode a dead letter; raises `UnknownSchema`."""
        try:
            found = msgspec.json.decode(encoded, type=cls)
            msgspec.json.decode(found.event)  # the decoder above skips it without validation
        except UNDECODABLE as error:
            raise UnknownSchema(f"the dead letter cannot be read: {error}") from None
        return found


def as_json(event: bytes) -> bytes:
    """Return the event unchanged; if it is not JSON or too large, a JSON string with its beginning."""
    if len(event) <= _LARGEST_EVENT:
        with suppress(*UNDECODABLE):
            msgspec.json.decode(event)
            return event
    text = event[:_LONGEST_TEXT].decode(errors="backslashreplace")
    if len(event) > _LONGEST_TEXT:
        text += f"… (cut: it had {len(event)} bytes)"
    return msgspec.json.encode(text)


def _end_of(trace: str) -> str:
    # The end of a traceback has the error. Cut coarsely first, because the search for secrets is slow on long texts.
    return fit_to_keep(trace[-_MARGIN * _LONGEST_TRACE :], most=sys.maxsize)[-_LONGEST_TRACE:]


_LENGTH = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def begin_request(subject: SnapshotSubject, priority: Priority, reason: Reason) -> "Span | None":
    """Begin the span of a request, to be ended when its event is published; None if tracing is off.

    Its `traceparent` is the correlation id of the event.
    """
    tracer = traces.tracer()
    if tracer is None:
        return None
    facts = {"tidegate.subject": subject.id, "tidegate.priority": priority.name, "tidegate.reason": reason.value}
    return tracer.begin("request refresh", facts, kind="producer")


def end_request(span: "Span", version: int) -> None:
    """End the span of a request after its event was published."""
    span.note({"tidegate.version": version})
    span.end()


def begin_refresh(event: RefreshEvent, deliveries: int) -> "Span | None":
    """Begin the span of an event; None if tracing is off or the correlation id is not a trace context."""
    tracer, parent = traces.tracer(), event.correlation_id
    if tracer is None or parent is None or len(parent) != _LENGTH or not parent.startswith("00-"):
        return None
    facts = {"tidegate.subject": event.subject_id, "tidegate.version": event.version, "tidegate.deliveries": deliveries}
    return tracer.begin(f"refresh {event.subject.kind}", facts, parent=parent, kind="consumer")


def end_refresh(span: "Span", dead: FailedRefresh | None, *, is_written: bool, began_ns: int) -> None:
    """End the span of an event that was written, became a dead letter or was obsolete.

    `began_ns`: when writing began.
    """
    if is_written:
        span.child("write", began_ns=began_ns)
    span.note({"tidegate.outcome": "refreshed" if is_written else "obsolete" if dead is None else "dead"})
    if dead is not None:
        span.fail(dead.message)
    span.end()
