"""Optional traces: one per run, from its trigger to its statistics, across all processes.

    with open_traces(settings.traces):                      # once, in a process
        with span("begin run", {"tidegate.run": 12}) as begun:
            ...
            stored = None if begun is None else begun.traceparent

Code that continues the work, in any process and also after a crash, passes `stored` as the parent of its spans. Without
an endpoint, OpenTelemetry is not imported and `span` does nothing.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from tidegate.core.errors import InvalidSettings

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span, Tracer

Facts = Mapping[str, str | int | float | bool]
"""Attributes of a span. Texts are redacted; names of credentials are not secret."""
Kind = Literal["internal", "server", "client", "producer", "consumer"]

_STANDARD = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: "Tracer | None" = None


class TraceSettings(BaseModel, frozen=True, extra="forbid"):
    """Export of traces. For fields that are not set, the standard variables of OpenTelemetry (OTEL_...) apply."""

    endpoint: str | None = None
    """Collector that accepts OTLP over HTTP, such as `http://localhost:4318`; default: OTEL_EXPORTER_OTLP_ENDPOINT.
    Without either, nothing is traced. Keys of the collector belong into OTEL_EXPORTER_OTLP_HEADERS."""
    sample: float | None = Field(default=None, ge=0, le=1)
    """Share of new traces that is sampled, from 0 to 1; default: OTEL_TRACES_SAMPLER, or all. Requests that carry a
    trace of their caller are traced if it is sampled."""
    service_name: str | None = Field(default=None, min_length=1)
    """Name of the service in traces; default: OTEL_SERVICE_NAME, or `tidegate`."""

    @field_validator("endpoint")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an address such as http://localhost:4318")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must be an address alone; keys belong into OTEL_EXPORTER_OTLP_HEADERS")
        return value

    @property
    def is_wanted(self) -> bool:
        """Whether an endpoint is configured and the SDK is not disabled."""
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return False
        return self.endpoint is not None or any(os.environ.get(name) for name in _STANDARD)


@contextmanager
def open_traces(settings: TraceSettings) -> Generator[None]:
    """Trace this process for the length of a block, if enabled; the remaining spans are sent at its end.

    Raises `InvalidSettings` if traces are enabled and OpenTelemetry is not installed.
    """
    global _tracer  # noqa: PLW0603 - a process has one log, one set of metrics, and one of these
    if not settings.is_wanted or _tracer is not None:
        yield
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise InvalidSettings('traces need OpenTelemetry: pip install "tidegate[otel]"')
    from tidegate.core.telemetry.spans import Tracer

    _tracer = Tracer.open(settings.endpoint, settings.sample, settings.service_name)
    try:
        yield
    finally:
        ended, _tracer = _tracer, None
        ended.close()


def tracer() -> "Tracer | None":
    """The tracer of this process; None if traces are disabled."""
    return _tracer


def is_inside() -> bool:
    """Whether there is a current span."""
    return _tracer is not None and _tracer.is_inside


def span(
    name: str, facts: Facts | None = None, *, parent: str | None = None, kind: Kind = "internal"
) -> "AbstractContextManager[Span | None]":
    """A span for the length of a block. Its parent is `parent` (a W3C `traceparent`), else the current span, if any.

    Log lines of the block carry its `trace_id`. An exception sets the status to error and is raised again.
    """
    return _NOTHING if _tracer is None else _tracer.span(name, facts, parent=parent, kind=kind)
