"""The HTTP client: connection pool, limits on time and size, and exactly one request per call, counted when sent."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp

from tidegate.core.clock import Clock, SystemClock, monotonic_ms
from tidegate.core.errors import ContractBroken, GrantVoid
from tidegate.core.telemetry import metrics
from tidegate.engine.upstream.addresses import PrivateHosts, guarded, open_socket
from tidegate.engine.upstream.exchange import FAILURES, Body, BodyTooLarge, CheckedRequest, Exchange
from tidegate.engine.upstream.messages import Answer, Head, Permit, Request, UpstreamFailed
from tidegate.engine.upstream.settings import UpstreamSettings

_SLOT_MS = 100
_SECOND = 1000 // _SLOT_MS
_MINUTE = 60 * _SECOND


class SentMeter:
    """Counts requests in slots of 100 ms, for a minute."""

    def __init__(self, stopwatch: Callable[[], float] = monotonic_ms) -> None:
        self._stopwatch = stopwatch
        self._slots: deque[list[int]] = deque()

    def note(self) -> None:
        """Count a request that is sent now."""
        slot = int(self._stopwatch()) // _SLOT_MS
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1][1] += 1
        else:
            self._forget(slot)
            self._slots.append([slot, 1])

    def peak(self) -> int:
        """The most requests that left within one second of the last minute."""
        self._forget(int(self._stopwatch()) // _SLOT_MS)
        most = total = 0
        # A window of one second moves over the slots; `total` is its sum.
        within: deque[list[int]] = deque()
        for slot in self._slots:
            within.append(slot)
            total += slot[1]
            while within[0][0] <= slot[0] - _SECOND:
                total -= within.popleft()[1]
            most = max(most, total)
        return most

    def _forget(self, now: int) -> None:
        while self._slots and self._slots[0][0] <= now - _MINUTE:
            self._slots.popleft()


_meters: dict[str, SentMeter] = {}


def meter_of(client: str) -> SentMeter:
    """The meter that all clients of this name share in this process; its gauge is computed at scrape time."""
    if client not in _meters:
        _meters[client] = meter = SentMeter()
        metrics.UPSTREAM_REQUESTS_PEAK.labels(client).set_function(meter.peak)
    return _meters[client]


_LONGEST_HEADER = 64 * 1024
_MOST_LINES = 500
"""Number of (host, permit) pairs with own labels in the metrics. Further pairs share one, because each uses memory."""
_NO_PERMIT, _OTHER = "none", "other"


class UpstreamClient:
    """Calls upstreams from one event loop.

    async with UpstreamClient(settings) as client:
        answer = await client.fetch(Request(url="https://api.github.com/users/octocat", purpose="github.user"))
    """

    def __init__(
        self, settings: UpstreamSettings | None = None, *, clock: Clock | None = None, name: str = "collection"
    ) -> None:
        """`name` is the label in metrics. Clients that share a limit have the same name."""
        self._settings, self._name, self._meter = settings or UpstreamSettings(), name, meter_of(name)
        self._clock, self._private = clock or SystemClock(), PrivateHosts(self._settings.private_hosts)
        self._session: aiohttp.ClientSession | None = None
        self._lines: dict[tuple[str, str], _Lines] = {}

    async def __aenter__(self) -> Self:
        self._session = _session(self._settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Send one request and return its answer, whatever its status. Nothing is tried again, and no redirect is
        followed: each request needs a permit of its own.

        `permit` is used when the connection is there, right before the first byte leaves. Where it is void by then,
        `GrantVoid` is raised, nothing is sent, and the connection is kept for the next request. Raises an
        `UpstreamFailed` that says whether the call may count. Cancelling closes the connection.
        """
        if self._session is None:
            raise ContractBroken("the upstream client is used inside `async with`")
        started_ms = monotonic_ms()

        def on_send() -> None:
            if permit is not None:
                permit.use()
            lines.sent.inc()
            self._meter.note()

        trip = Exchange(request, on_send, self._private, on_sent=None if permit is None else permit.sent)
        lines = self._lines_of(trip.url.host or "", _NO_PERMIT if permit is None else permit.spends)
        outcome = await self._travel(self._session, trip, started_ms)
        if isinstance(outcome, GrantVoid):
            raise outcome
        lines.count(outcome, monotonic_ms() - started_ms)
        if isinstance(outcome, Answer):
            return outcome
        # Raised here, so that its context contains no errors of aiohttp, which hold the request headers.
        raise outcome

    async def _travel(
        self, session: aiohttp.ClientSession, trip: Exchange, started_ms: float
    ) -> Answer | UpstreamFailed | GrantVoid:
        """Exchange one request within the total timeout. Errors are returned, so that the caller raises them."""
        try:
            async with asyncio.timeout(self._settings.total_timeout.total_seconds()):
                with guarded(trip.guard):
                    body = await self._send(session, trip)
        except GrantVoid as void:
            return void.with_traceback(None)
        except FAILURES as error:
            return trip.explain(error)
        head = trip.head
        assert head is not None
        return Answer(
            status=head.status,
            headers=head.headers,
            url=head.url,
            received_at=head.received_at,
            body=body,
            elapsed_ms=monotonic_ms() - started_ms,
        )

    async def _send(self, session: aiohttp.ClientSession, trip: Exchange) -> bytes:
        """Send the request, note the head of its answer, and return the body."""
        response = await session.request(
            trip.request.method,
            trip.url,
            headers=trip.request.headers,
            data=trip.request.body,
            allow_redirects=False,
            middlewares=(trip.send_once,),
        )
        try:
            trip.head = Head(
                status=response.status,
                headers=response.headers,
                url=str(response.url),
                received_at=self._clock.now(),
            )
            return await self._read_body(response)
        except BaseException:
            response.close()
            raise

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        """Read and decompress a body. Raises `BodyTooLarge` if it exceeds the setting `largest_body`."""
        most = self._settings.largest_body
        # These answers have no body, whatever their headers say.
        if response.method == "HEAD" or response.status in (204, 304):
            return b""
        # Refused before any of it is read.
        if response.content_length is not None and response.content_length > most:
            raise BodyTooLarge
        body = Body(response.headers.get("Content-Encoding"), most)
        async for chunk in response.content.iter_any():
            body.feed(chunk)
        return body.finish()

    def _lines_of(self, host: str, spends: str) -> "_Lines":
        names = (host, spends)
        if names not in self._lines and len(self._lines) >= _MOST_LINES:
            names = (_OTHER, _OTHER)
        lines = self._lines.get(names)
        if lines is None:
            lines = self._lines[names] = _Lines(self._name, *names)
        return lines


class _Lines:
    """The metrics of one host and permit, cached because the lookup is slower than the increment."""

    def __init__(self, client: str, host: str, spends: str) -> None:
        self._host = host
        self._calls = {"2xx": metrics.UPSTREAM_REQUESTS.labels(host, "2xx")}
        self._seconds = metrics.UPSTREAM_REQUEST_SECONDS.labels(host)
        self.sent = metrics.UPSTREAM_REQUESTS_SENT.labels(client, host, spends)

    def count(self, outcome: Answer | UpstreamFailed, elapsed_ms: float) -> None:
        """Add a request that ended."""
        status = f"{outcome.status // 100}xx" if isinstance(outcome, Answer) else "failed"
        if status not in self._calls:
            self._calls[status] = metrics.UPSTREAM_REQUESTS.labels(self._host, status)
        self._calls[status].inc()
        self._seconds.observe(elapsed_ms / 1000)


def _session(settings: UpstreamSettings) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=settings.connections,
            limit_per_host=settings.connections_per_host,
            keepalive_timeout=settings.keep_alive.total_seconds(),
            ttl_dns_cache=max(1, round(settings.dns_cache.total_seconds())),
            socket_factory=open_socket,
        ),
        timeout=aiohttp.ClientTimeout(
            total=None,  # `total_timeout` includes the body
            sock_connect=settings.connect_timeout.total_seconds(),
            sock_read=settings.read_timeout.total_seconds(),
        ),
        headers={"User-Agent": settings.user_agent, "Accept-Encoding": "gzip, deflate"},
        cookie_jar=aiohttp.DummyCookieJar(),  # requests are independent of each other
        request_class=CheckedRequest,
        auto_decompress=False,
        max_field_size=_LONGEST_HEADER,
        max_line_size=_LONGEST_HEADER,
    )
