"""Traces, where somebody wants them: one from whatever began a run to its statistics, over all processes.

    with open_traces(settings.traces):                      # once, in a process
        with span("begin run", {"tidegate.run": 12}) as begun:
            ...
            stored = None if begun is None else begun.traceparent

Whoever goes on with it, here or elsewhere, now or after a crash, gives `stored` as the parent of its own spans. Without
an endpoint nothing of OpenTelemetry is imported, and `span` gives back one and the same empty block.
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
"""What a span says of itself. Never a secret: texts are redacted, names of credentials are none."""
Kind = Literal["internal", "server", "client", "producer", "consumer"]

_STANDARD = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: "Tracer | None" = None


class TraceSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Where traces go. The standard variables of OpenTelemetry (OTEL_...) hold for whatever is not said here."""

    endpoint: str | None = None
    """A collector that speaks OTLP over HTTP, such as `http://localhost:4318`; else OTEL_EXPORTER_OTLP_ENDPOINT. Where
    neither is given, nothing is traced. Whatever it wants as a key belongs into OTEL_EXPORTER_OTLP_HEADERS."""
    sample: float | None = Field(default=None, ge=0, le=1)
    """Which part of what begins here is traced, from 0 to 1; else what OTEL_TRACES_SAMPLER says, and else all. What
    comes with a trace of its caller's is traced if that is."""
    service_name: str | None = Field(default=None, min_length=1)
    """As what we appear; else OTEL_SERVICE_NAME, and else `tidegate`."""

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
        """Whether there is somewhere to send spans to."""
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return False
        return self.endpoint is not None or any(os.environ.get(name) for name in _STANDARD)


@contextmanager
def open_traces(settings: TraceSettings) -> Generator[None]:
    """Trace what happens in this process for the length of a block, if that is wanted; what is left is sent at its end.

    Raises `InvalidSettings` where it is wanted and cannot be.
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
    """Whoever makes spans in this process; None where nothing is traced."""
    return _tracer


def is_inside() -> bool:
    """Whether this is inside a span, so that a part of it would not stand alone."""
    return _tracer is not None and _tracer.is_inside


def span(
    name: str, facts: Facts | None = None, *, parent: str | None = None, kind: Kind = "internal"
) -> "AbstractContextManager[Span | None]":
    """A span for the length of a block: below `parent`, a W3C `traceparent`, else below the one we are in, else a root.

    Log lines of the block say its `trace_id`. An exception makes it a failed one, and goes on.
    """
    return _NOTHING if _tracer is None else _tracer.span(name, facts, parent=parent, kind=kind)
