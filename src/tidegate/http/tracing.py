"""Requests that change something are the beginning of a trace, or a part of their caller's.

Those that only look are not traced: a dashboard asks all day, and no run comes of it. A stranger, at an address that
is open to everybody, has no say in what is traced.
"""

from starlette.requests import Request
from starlette.responses import Response

from tidegate.core.telemetry import traces
from tidegate.http.callers import caller_of
from tidegate.http.dispatch import answer
from tidegate.http.endpoints import Endpoint
from tidegate.http.problems import to_trouble
from tidegate.http.settings import HttpSettings

_PLACE = "traceparent"
"""The header in which callers name their trace, as W3C has it."""


async def answer_traced(endpoint: Endpoint, request: Request, settings: HttpSettings) -> Response:
    """`answer`, inside a span where one is wanted. What is the caller's fault is no failure of ours."""
    tracer = traces.tracer()
    if tracer is None or endpoint.method == "GET":
        return await answer(endpoint, request, settings)
    parent = None if caller_of(request).role is None else request.headers.get(_PLACE)
    facts = {"http.request.method": endpoint.method, "http.route": endpoint.path}
    span = tracer.begin(f"{endpoint.method} {endpoint.path}", facts, parent=parent, kind="server")
    try:
        with span.current():
            response = await answer(endpoint, request, settings)
        span.note({"http.response.status_code": response.status_code})
        return response
    except Exception as error:
        trouble = to_trouble(error)
        span.note({"http.response.status_code": 500 if trouble is None else trouble.status})
        if trouble is None or trouble.status >= 500:
            span.fail(f"{type(error).__name__}: {error}")
        raise
    finally:
        span.end()
