"""What is stored of a request: address, status, duration and identifier, without headers and without secrets."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec

from tidegate.core.clock import Clock
from tidegate.core.telemetry import traces
from tidegate.core.telemetry.redaction import fit_to_keep, redact_known
from tidegate.engine.upstream.messages import Answer, Head, Permit, Request, UpstreamFailed, shown

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


LONGEST_REQUEST_ID = 100
_REQUEST_ID_HEADERS = (
    *("X-GitHub-Request-Id", "X-Request-Id", "Request-Id", "X-Correlation-Id"),
    *("x-amzn-RequestId", "x-amz-request-id", "CF-Ray"),
)


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that was sent, or may have been."""

    sent_at: datetime
    duration_ms: int
    """From the call of the client to the last byte, or to the failure."""
    method: str
    url: str
    """Without secrets, and cut off where it is long."""
    status: int | None = None
    """None where no response began."""
    response_bytes: int | None = None
    """Size of the decompressed body; None where it is incomplete."""
    request_id: str | None = None
    """The identifier that the upstream gave to the request, in a header of its response."""


class CallRecorder:
    """Sends requests with `fetch`, and keeps the record of the last one as `call`.

    A request that certainly did not leave has none: without a connection, or with a permit that was withdrawn. The
    secret of the request is removed from its URL, whatever the name of its parameter.
    """

    def __init__(self, fetch: Fetch, clock: Clock, secret: str = "") -> None:
        self._fetch, self._clock, self._secret = fetch, clock, secret
        self.call: CallRecord | None = None

    async def fetch(self, request: Request, permit: Permit | None) -> Answer:
        """Send a request and record it. Raises what `fetch` raises."""
        began = self._clock.now()
        try:
            answer = await self._fetch(request, permit)
        except UpstreamFailed as failure:
            if failure.was_sent is not False:
                duration = self._clock.now() - began
                self.call = self._record(request, began, duration / timedelta(milliseconds=1), failure.head)
            raise
        # Not from `began`: a caller may have fetched something else first, such as the robots.txt of a host.
        sent_at = self._clock.now() - timedelta(milliseconds=answer.elapsed_ms)
        self.call = self._record(request, sent_at, answer.elapsed_ms, answer, len(answer.body))
        return answer

    def _record(
        self, request: Request, sent_at: datetime, duration_ms: float, head: Head | None, size: int | None = None
    ) -> CallRecord:
        request_id = None if head is None else request_id_of(head)
        return CallRecord(
            sent_at=sent_at,
            duration_ms=round(duration_ms),
            method=request.method,
            url=shown(redact_known(request.url, self._secret)),
            status=None if head is None else head.status,
            response_bytes=size,
            request_id=None if request_id is None else redact_known(request_id, self._secret),
        )


def request_id_of(head: Head) -> str | None:
    """Return the identifier that the upstream gave to a request; None where its response has none."""
    for name in _REQUEST_ID_HEADERS:
        if value := head.headers.get(name):
            return fit_to_keep(value, most=LONGEST_REQUEST_ID)
    return None
