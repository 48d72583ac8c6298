"""A collector that speaks OTLP over HTTP, as OpenTelemetry's own does: what spans really look like when they arrive."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span as it arrived."""

    trace: str
    id: str
    parent: str
    name: str
    facts: dict[str, Any]
    service: str
    pid: int
    began_ns: int
    ended_ns: int
    failure: str


@dataclass
class Collector:
    """Where it listens, and what it got."""

    url: str = ""
    spans: list[Received] = field(default_factory=list[Received])
    raw: bytes = b""
    """Everything that came, undecoded: what is not in here was not sent."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Those of the last request."""

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Received:
        [span] = self.named(name)
        return span

    def chain(self, span: Received) -> list[str]:
        """Its name and those of what it is below, up to the root or to what is not here."""
        by_id, names = {each.id: each for each in self.spans}, list[str]()
        this: Received | None = span
        while this is not None:
            names.append(this.name)
            this = by_id.get(this.parent)
        return names


@asynccontextmanager
async def collecting() -> AsyncGenerator[Collector]:
    """A collector on a free port."""
    collector = Collector()

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("content-encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        collector.raw += body
        collector.headers = {name.lower(): value for name, value in request.headers.items()}
        collector.spans += _decoded(body)
        return web.Response(content_type="application/x-protobuf")

    application = web.Application()
    application.router.add_post("/v1/traces", take)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield collector
    finally:
        await runner.cleanup()


def _decoded(body: bytes) -> list[Received]:
    found: list[Received] = []
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _facts(group.resource.attributes)
        for scope in group.scope_spans:
            found += [
                Received(
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    name=span.name,
                    facts=_facts(span.attributes),
                    service=resource["service.name"],
                    pid=resource["process.pid"],
                    began_ns=span.start_time_unix_nano,
                    ended_ns=span.end_time_unix_nano,
                    failure=span.status.message,
                )
                for span in scope.spans
            ]
    return found


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
