"""Spans of refreshes. An event carries its trace context as its correlation id.

request refresh          in the process that requests it, as child of the caller's span or as a new trace
  refresh {kind}         in the process that handles the event
    call, write
"""

from typing import TYPE_CHECKING

from tidegate.core.priority import Priority
from tidegate.core.telemetry import traces
from tidegate.systems.snapshots.events import FailedRefresh, Reason, RefreshEvent
from tidegate.systems.snapshots.model import SnapshotSubject

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

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
