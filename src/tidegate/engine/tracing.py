"""Spans of runs and jobs. A run's row holds its trace context, so the trace continues in every process.

    POST /v1/runs | tidegate collect | schedule 7
      begin run                     its context is stored in the row of the run
        job commits_list            one span per claim, in the process that claims it
          claim, call, commit
        event collection.run_ended  from its commit to its delivery
          complete run
            statistics

Nothing here is called if tracing is off or the run is not sampled.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.clock import to_ms
from tidegate.core.telemetry import traces
from tidegate.engine.executions import ExecutionOutcome, outcome_of
from tidegate.engine.job_store import Claim, JobResult
from tidegate.engine.runs import Run
from tidegate.engine.schedules.firings import Firing, FiringOutcome
from tidegate.primitives.gate import Admitted
from tidegate.storage.sql.outbox import Event

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

_WRONG = (ExecutionOutcome.FAILED, ExecutionOutcome.RETRIED, ExecutionOutcome.LOST)


def firing(schedule_id: int, key: str) -> "AbstractContextManager[Span | None]":
    """Return the span of a requested firing, a child of the caller's trace where there is one."""
    return traces.span(f"schedule {schedule_id}", _of_firing(schedule_id, key), kind="producer")


def fired(span: "Span | None", firing: Firing) -> None:
    """Record the outcome of a firing in its span."""
    if span is not None:
        _note_firing(span, firing.outcome, firing.run_id, firing.reason)


def begin_firings(due: Mapping[int, str]) -> dict[int, "Span"]:
    """Begin a trace for each due schedule, by schedule id; `due` has the firing keys."""
    tracer = traces.tracer()
    if tracer is None:
        return {}
    return {each: tracer.begin(f"schedule {each}", _of_firing(each, key)) for each, key in due.items()}


def end_firing(span: "Span | None", outcome: FiringOutcome, run_id: int | None, reason: str | None) -> None:
    """End the span of a firing with its outcome. A span that is not ended is not exported."""
    if span is not None:
        _note_firing(span, outcome, run_id, reason)
        span.end()


def _of_firing(schedule_id: int, key: str) -> traces.Facts:
    return {"tidegate.schedule": schedule_id, "tidegate.firing": key, "tidegate.trigger": "scheduled"}


def _note_firing(span: "Span", outcome: FiringOutcome, run_id: int | None, reason: str | None) -> None:
    span.note({"tidegate.outcome": outcome.value, **({} if run_id is None else {"tidegate.run": run_id})})
    if outcome is FiringOutcome.FAILED:
        span.fail(reason or "")


def begin_job(claim: Claim, admitted: Admitted, read_ns: int) -> "Span | None":
    """Begin the span of a claimed job that was read at `read_ns`; None if tracing is off in this process."""
    tracer = traces.tracer()
    if tracer is None:
        return None
    job = claim.job
    facts = {
        "tidegate.run": job.run_id,
        "tidegate.job": job.id,
        "tidegate.source": claim.source,
        "tidegate.kind": job.spec.kind,
        "tidegate.resource": job.spec.resource,
        "tidegate.page": job.spec.page,
        "tidegate.user": claim.user_id,
        "tidegate.attempt": claim.attempt,
        "tidegate.fence": claim.fence,
        "tidegate.deliveries": admitted.deliveries,
        "tidegate.credential.name": admitted.credential,
    }
    span = tracer.begin(f"job {job.spec.kind}", facts, parent=claim.traceparent, kind="consumer", began_ns=read_ns)
    # Ends now: it covers the time from the read of the message to the claim.
    span.child("claim", began_ns=read_ns)
    return span


async def work_on(
    make: Callable[[Claim, Admitted], Awaitable[JobResult]], claim: Claim, admitted: Admitted, span: "Span"
) -> JobResult:
    """Execute a job inside its span. The result carries the span, which ends with the commit."""
    with span.current():
        finished = await make(claim, admitted)
    return msgspec.structs.replace(finished, span=span)


def end_jobs(finished: Iterable[JobResult], late: Sequence[JobResult], began_ns: int) -> None:
    """End the spans of jobs with committed or late results."""
    for one in finished:
        if one.span is not None:
            _end_job(one, one.span, outcome_of(one), began_ns)
    for one in late:
        if one.span is not None:
            _end_job(one, one.span, ExecutionOutcome.LOST, began_ns)


def _end_job(one: JobResult, span: "Span", outcome: ExecutionOutcome, began_ns: int) -> None:
    span.child("commit", began_ns=began_ns)
    came = {"tidegate.storage.documents": len(one.documents), "tidegate.follow_ups": len(one.follow_ups)}
    span.note({"tidegate.outcome": outcome.value, **came})
    if outcome in _WRONG:
        span.fail(one.reason)
    span.end()


@contextmanager
def completion(run: Run, event: Event) -> Generator[None]:
    """Record the outbox event that reported the end of a run as a span, and run the block in a child span of it.

    Both belong to the trace of the run. Does nothing if the run is not traced.
    """
    tracer = traces.tracer()
    if tracer is None or run.traceparent is None:
        yield
        return
    facts = {"tidegate.run": run.id, "tidegate.source": run.source, "tidegate.user": run.user_id}
    created = None if event.created_at is None else to_ms(event.created_at) * 1_000_000
    event_span = tracer.begin(f"event {event.kind}", facts, parent=run.traceparent, kind="producer", began_ns=created)
    event_span.end()
    counted = {"tidegate.jobs": run.total_jobs, "tidegate.failed_jobs": run.failed_jobs, "tidegate.calls": run.calls}
    with tracer.span("complete run", {**facts, **counted}, parent=event_span.traceparent, kind="consumer"):
        yield


def finalizer(finalize: object) -> "AbstractContextManager[Span | None]":
    """A span for a finalizer of a run, named after its class."""
    return traces.span(getattr(finalize, "__qualname__", "finalizer").partition(".")[0].lower())
