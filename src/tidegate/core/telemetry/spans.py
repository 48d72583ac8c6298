"""Spans on top of OpenTelemetry. Imported only if traces are enabled: see `traces.py`."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from structlog.contextvars import bound_contextvars

from tidegate.core.telemetry.redaction import fit_to_keep, redact_text
from tidegate.core.telemetry.traces import Facts, Kind

_HEADER = "traceparent"
_PATH = "/v1/traces"
_LONGEST_REASON = 500
SENT_WITHIN_S = 3.0
"""Time limit for sending the last spans when a process ends."""
_KINDS = {kind.name.lower(): kind for kind in trace.SpanKind}
_propagator = TraceContextTextMapPropagator()


class Span:
    """One span. It is sent after its end."""

    def __init__(self, tracer: "Tracer", span: trace.Span) -> None:
        self.tracer, self.inner = tracer, span

    @property
    def trace_id(self) -> str:
        """The trace id, as 32 hexadecimal digits."""
        return trace.format_trace_id(self.inner.get_span_context().trace_id)

    @property
    def traceparent(self) -> str | None:
        """The W3C `traceparent` for spans that continue the trace elsewhere; None if the trace is not sampled."""
        context = self.inner.get_span_context()
        if not context.trace_flags.sampled:
            return None
        return f"00-{self.trace_id}-{trace.format_span_id(context.span_id)}-01"

    def note(self, facts: Facts) -> None:
        """Add attributes to the span."""
        for name, value in facts.items():
            self.inner.set_attribute(name, _redacted(value))

    def fail(self, reason: str) -> None:
        """Set the status of the span to error."""
        self.inner.set_status(trace.Status(trace.StatusCode.ERROR, fit_to_keep(reason, most=_LONGEST_REASON)))

    def child(self, name: str, facts: Facts | None = None, *, began_ns: int, ended_ns: int | None = None) -> None:
        """Add a child span that has already ended."""
        parent = trace.set_span_in_context(self.inner)
        part = self.tracer.inner.start_span(name, parent, start_time=began_ns, attributes=_all_redacted(facts))
        part.end(ended_ns)

    @contextmanager
    def current(self) -> Generator[None]:
        """Make it the current span for the length of a block: parent of new spans, and trace id of log lines."""
        with (
            trace.use_span(self.inner, record_exception=False, set_status_on_exception=False),
            bound_contextvars(trace_id=self.trace_id),
        ):
            yield

    def end(self) -> None:
        """End the span at the current time."""
        self.inner.end()


class Tracer:
    """Creates spans and sends them from a background thread."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider, self.inner = provider, provider.get_tracer("tidegate")

    @classmethod
    def open(cls, endpoint: str | None, sample: float | None, service_name: str | None) -> "Tracer":
        """Create the tracer of a process. For parameters that are None, the standard OTEL variables apply."""
        resource = Resource.create({"process.pid": os.getpid()})
        if service_name or str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: service_name or "tidegate"}))
        sampler = None if sample is None else ParentBased(TraceIdRatioBased(sample))
        provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        # The endpoint may be given with or without the path of traces.
        address = None if endpoint is None else endpoint.removesuffix("/").removesuffix(_PATH) + _PATH
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(address)))
        return cls(provider)

    @property
    def is_inside(self) -> bool:
        """See `traces.is_inside`."""
        return trace.get_current_span().get_span_context().is_valid

    def begin(
        self,
        name: str,
        facts: Facts | None = None,
        *,
        parent: str | None = None,
        kind: Kind = "internal",
        began_ns: int | None = None,
    ) -> Span:
        """Begin a span, which the caller must end. It does not become the current span.

        `parent` is a traceparent header; without one, the current span is the parent if there is one.
        """
        context = None if parent is None else _propagator.extract({_HEADER: parent})
        begun = self.inner.start_span(name, context, _KINDS[kind], _all_redacted(facts), start_time=began_ns)
        return Span(self, begun)

    @contextmanager
    def span(
        self, name: str, facts: Facts | None = None, *, parent: str | None = None, kind: Kind = "internal"
    ) -> Generator[Span]:
        """See `traces.span`."""
        begun = self.begin(name, facts, parent=parent, kind=kind)
        try:
            with begun.current():
                yield begun
        except BaseException as error:
            begun.fail(f"{type(error).__name__}: {error}")
            raise
        finally:
            begun.end()

    def close(self) -> None:
        """Send the remaining spans, within seconds."""
        # In a daemon thread with a time limit: an unavailable collector would block the shutdown until it gives up.
        closing = threading.Thread(target=self._provider.shutdown, name="send the last spans", daemon=True)
        closing.start()
        closing.join(SENT_WITHIN_S)


def _all_redacted(facts: Facts | None) -> dict[str, str | int | float | bool] | None:
    return None if facts is None else {name: _redacted(value) for name, value in facts.items()}


def _redacted(value: str | float | bool) -> str | int | float | bool:
    return redact_text(value) if isinstance(value, str) else value
