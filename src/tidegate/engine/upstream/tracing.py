"""Calls as parts of a trace."""

from collections.abc import Awaitable, Callable

from tidegate.core.telemetry import traces
from tidegate.engine.upstream.messages import Answer, Permit, Request

Fetch = Callable[[Request, Permit | None], Awaitable[Answer]]


def called(fetch: Fetch) -> Fetch:
    """Wrap the function in a span, if the caller has one. Headers and queries are left out: some are secrets."""
    if not traces.is_inside():
        return fetch

    async def traced(request: Request, permit: Permit | None) -> Answer:
        facts = {"http.request.method": request.method, "url.full": request.url.partition("?")[0]}
        with traces.span("call", facts, kind="client") as span:
            answer = await fetch(request, permit)
            if span is not None:
                span.note({"http.response.status_code": answer.status})
            return answer

    return traced
