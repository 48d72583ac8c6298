"""The HTTP client: connection pool, limits on time and size, and exactly one request per call, counted when sent."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tidegate.core.clock import Clock, SystemClock, monotonic_ms
from tidegate.core.errors import ContractBroken
from tidegate.engine import metrics
from tidegate.engine.upstream.addresses import PrivateHosts
from tidegate.engine.upstream.connections import ConnectionPool
from tidegate.engine.upstream.exchange import FAILURES, Exchange
from tidegate.engine.upstream.messages import Answer, Permit, Request, UpstreamFailed
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
        self._total_timeout_s = self._settings.total_timeout.total_seconds()
        defaults = {"User-Agent": self._settings.user_agent, "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        self._defaults = {name.lower(): f"{name}: {value}" for name, value in defaults.items()}
        self._pool: ConnectionPool | None = None
        self._lines: dict[tuple[str, str], _Lines] = {}

    async def __aenter__(self) -> Self:
        self._pool = ConnectionPool(self._settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Send one request and return its answer, whatever its status. Nothing is tried again, and no redirect is
        followed: each request needs a permit of its own.

        `permit` is used when the connection is there, right before the first byte leaves. Where it is void by then,
        `GrantVoid` is raised, nothing is sent, and the connection is kept for the next request. Raises an
        `UpstreamFailed` that says whether the call may count. Cancelling closes the connection.
        """
        if self._pool is None:
            raise ContractBroken("the upstream client is used inside `async with`")
        started_ms = monotonic_ms()
        exchange = Exchange(
            request, self._private, self._defaults, largest_body=self._settings.largest_body, clock=self._clock
        )
        lines = self._lines_of(exchange.origin.host, _NO_PERMIT if permit is None else permit.spends)
        try:
            async with asyncio.timeout(self._total_timeout_s):
                body = await self._travel(self._pool, exchange, permit, lines)
        except FAILURES as error:
            outcome = exchange.explain(error)
        else:
            outcome = _answer(exchange, body, monotonic_ms() - started_ms)
        lines.count(outcome, monotonic_ms() - started_ms)
        if isinstance(outcome, Answer):
            return outcome
        # Raised here, so that its context contains no other error.
        raise outcome

    async def _travel(self, pool: ConnectionPool, exchange: Exchange, permit: Permit | None, lines: "_Lines") -> bytes:
        """Send the request on a connection, and return the body of the answer."""
        async with pool.connection(exchange.origin, exchange.guard) as connection:
            if exchange.guard is not None:
                # The connection may have been opened for another request.
                exchange.guard.require(connection.peer)
            # Opening a connection can take long, so the permit is checked only now.
            if permit is not None:
                permit.use()
            lines.sent.inc()
            self._meter.note()
            try:
                connection.send(exchange)
            finally:
                if permit is not None:
                    permit.sent()
            return await connection.body()

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


def _answer(exchange: Exchange, body: bytes, elapsed_ms: float) -> Answer:
    head = exchange.head
    assert head is not None
    return Answer(
        status=head.status,
        headers=head.headers,
        url=head.url,
        received_at=head.received_at,
        body=body,
        elapsed_ms=elapsed_ms,
    )
