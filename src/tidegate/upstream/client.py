"""The client: a pool of connections, limits of time and size, and no call that nobody asked for."""

import asyncio
from types import TracebackType
from typing import Self

import aiohttp

from tidegate.kernel.clock import Clock, SystemClock, monotonic_ms
from tidegate.kernel.errors import ContractBroken
from tidegate.telemetry import metrics
from tidegate.upstream.decoding import Body, BodyTooLarge
from tidegate.upstream.errors import UpstreamFailed
from tidegate.upstream.messages import Answer, Head, Request
from tidegate.upstream.settings import UpstreamSettings
from tidegate.upstream.trip import FAILURES, NotedRequest, Trip

_LONGEST_HEADER = 64 * 1024
_MOST_HOSTS = 200
"""With a line of their own in the metrics; all further ones share one, since each line stays in memory."""


class UpstreamClient:
    """Calls upstreams from one event loop.

    async with UpstreamClient(settings) as client:
        answer = await client.fetch(Request(url="https://api.github.com/users/octocat", purpose="github.user"))
    """

    def __init__(self, settings: UpstreamSettings | None = None, *, clock: Clock | None = None) -> None:
        self._settings = settings or UpstreamSettings()
        self._clock = clock or SystemClock()
        self._session: aiohttp.ClientSession | None = None
        self._hosts: dict[str, _HostLines] = {}

    async def __aenter__(self) -> Self:
        self._session = _session(self._settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def fetch(self, request: Request) -> Answer:
        """Make one call and return its answer, whatever its status; redirects of GET and HEAD are followed,
        unless the request says otherwise.

        Raises an `UpstreamFailed` that says whether the call may count. Nothing is tried again. Cancelling closes the
        connection.
        """
        if self._session is None:
            raise ContractBroken("the upstream client is used inside `async with`")
        started_ms = monotonic_ms()
        trip = Trip(request, most_redirects=self._settings.most_redirects)
        outcome = await self._travel(self._session, trip, started_ms)
        self._count(trip, outcome, monotonic_ms() - started_ms)
        if isinstance(outcome, Answer):
            return outcome
        # Raised out here, so that it drags along none of aiohttp's errors, which know our headers.
        raise outcome

    async def _travel(self, session: aiohttp.ClientSession, trip: Trip, started_ms: float) -> Answer | UpstreamFailed:
        try:
            async with asyncio.timeout(self._settings.total_timeout.total_seconds()):
                while True:
                    head, body = await self._leg(session, trip)
                    if body is not None:
                        break
        except UpstreamFailed as failure:
            return failure.with_traceback(None)
        except FAILURES as error:
            return trip.explain(error)
        return Answer(
            status=head.status,
            headers=head.headers,
            url=head.url,
            received_at=head.received_at,
            body=body,
            redirects=trip.redirects,
            elapsed_ms=monotonic_ms() - started_ms,
        )

    async def _leg(self, session: aiohttp.ClientSession, trip: Trip) -> tuple[Head, bytes | None]:
        """One request and its answer; no body means that we are to go on to where it sent us."""
        response = await session.request(
            trip.request.method,
            trip.url,
            headers=trip.headers,
            data=trip.request.body,
            allow_redirects=False,
            middlewares=(trip.send_once,),
        )
        try:
            head = Head(
                status=response.status,
                headers=response.headers,
                url=str(response.url),
                received_at=self._clock.now(),
            )
            if trip.turn(head):
                response.release()
                return head, None
            return head, await self._body(response)
        except BaseException:
            response.close()
            raise

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        most = self._settings.largest_body
        if response.method == "HEAD" or response.status in (204, 304):
            return b""
        if response.content_length is not None and response.content_length > most:
            raise BodyTooLarge
        body = Body(response.headers.get("Content-Encoding"), most)
        async for chunk in response.content.iter_any():
            body.feed(chunk)
        return body.finish()

    def _count(self, trip: Trip, outcome: Answer | UpstreamFailed, elapsed_ms: float) -> None:
        host = trip.url.host or ""
        if host not in self._hosts and len(self._hosts) >= _MOST_HOSTS:
            host = "other"
        lines = self._hosts.get(host)
        if lines is None:
            lines = self._hosts[host] = _HostLines(host)
        lines.count(f"{outcome.status // 100}xx" if isinstance(outcome, Answer) else "failed", 1)
        if trip.redirects:
            lines.count("3xx", len(trip.redirects))
        lines.seconds.observe(elapsed_ms / 1000)


class _HostLines:
    """The lines of one host in the metrics, kept because looking them up costs more than counting."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._calls = {"2xx": metrics.UPSTREAM_REQUESTS.labels(host, "2xx")}
        self.seconds = metrics.UPSTREAM_REQUEST_SECONDS.labels(host)

    def count(self, status: str, calls: int) -> None:
        """Add to the line of this class of statuses."""
        if status not in self._calls:
            self._calls[status] = metrics.UPSTREAM_REQUESTS.labels(self._host, status)
        self._calls[status].inc(calls)


def _session(settings: UpstreamSettings) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=settings.connections,
            limit_per_host=settings.connections_per_host,
            keepalive_timeout=settings.keep_alive.total_seconds(),
            ttl_dns_cache=max(1, round(settings.dns_cache.total_seconds())),
        ),
        timeout=aiohttp.ClientTimeout(
            total=None,  # ours counts over all redirects
            sock_connect=settings.connect_timeout.total_seconds(),
            sock_read=settings.read_timeout.total_seconds(),
        ),
        headers={"User-Agent": settings.user_agent, "Accept-Encoding": "gzip, deflate"},
        cookie_jar=aiohttp.DummyCookieJar(),  # a call says all about itself
        request_class=NotedRequest,
        auto_decompress=False,
        max_field_size=_LONGEST_HEADER,
        max_line_size=_LONGEST_HEADER,
    )
