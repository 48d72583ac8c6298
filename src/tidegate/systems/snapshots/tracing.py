"""What a trace says of refreshes. An event carries its place in the trace as its correlation id.

request refresh          by whoever asked, below a request of his or as a trace of its own
  refresh character      by whichever process gets the event
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
    """The span of a request for a refresh, to be ended when its event is published; None where it is not traced.

    Its `traceparent` is the correlation id of the event.
    """
    tracer = traces.tracer()
    if tracer is None:
        return None
    facts = {"tidegate.subject": subject.id, "tidegate.priority": priority.name, "tidegate.reason": reason.value}
    return tracer.begin("request refresh", facts, kind="producer")


def end_request(span: "Span", version: int) -> None:
    """Its event was published, under this version."""
    span.note({"tidegate.version": version})
    span.end()


def begin_refresh(event: RefreshEvent, deliveries: int) -> "Span | None":
    """The span of an event that is worked on; None where it is not traced, or not by us."""
    tracer, parent = traces.tracer(), event.correlation_id
    if tracer is None or parent is None or len(parent) != _LENGTH or not parent.startswith("00-"):
        return None
    facts = {"tidegate.subject": event.subject_id, "tidegate.version": event.version, "tidegate.deliveries": deliveries}
    return tracer.begin(f"refresh {event.subject.kind}", facts, parent=parent, kind="consumer")


def end_refresh(span: "Span", dead: FailedRefresh | None, *, is_written: bool, began_ns: int) -> None:
    """It was written, or became a dead letter, or was nobody's wish any more; `began_ns` is when writing began."""
    if is_written:
        span.child("write", began_ns=began_ns)
    span.note({"tidegate.outcome": "refreshed" if is_written else "obsolete" if dead is None else "dead"})
    if dead is not None:
        span.fail(dead.message)
    span.end()
