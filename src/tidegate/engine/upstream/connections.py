"""Connections to upstreams: HTTP/1.1, parsed by httptools, and kept for further requests.

A connection carries one exchange at a time. It is used again only after a complete answer that allows it. Nothing is
sent twice: a connection that breaks fails its exchange.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import Context
from functools import cache, partial
from typing import Any, cast

from aiohappyeyeballs import start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.engine.upstream.addresses import AddressGuard, NumericHost, is_address, open_socket, parse
from tidegate.engine.upstream.exchange import Exchange, NotHttp, UpstreamError
from tidegate.engine.upstream.messages import Origin
from tidegate.engine.upstream.settings import UpstreamSettings

_LARGEST_HEAD = 128 * 1024
"""Bytes of a status line with its headers, and of the headers behind a body."""
_NEXT_ADDRESS_S = 0.25
"""How long an address of a host may take until the next one is tried as well."""
_MOST_HOSTS = 1000
"""Hosts of which addresses are remembered."""


class UpstreamConnection(asyncio.Protocol):
    """One connection. `send` begins an exchange, and `body` waits for the end of its answer."""

    def __init__(self, read_timeout_s: float) -> None:
        self._read_timeout_s = read_timeout_s
        self._loop = asyncio.get_running_loop()
        self._parser: Any = HttpResponseParser(self)
        # As tolerant as browsers of control characters in headers, and of line ends without a carriage return.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._body: asyncio.Future[bytes] | None = None
        self._lines: list[tuple[str, str]] = []
        self._unread = 0
        """Bytes that were received since the last end of a head or part of a body."""
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_usable = True
        """Whether another request can be sent."""
        self.idle_since_s = 0.0
        self.peer = ""
        """The address that it leads to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)  # the class of uvloop is not a subclass
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""

    def send(self, exchange: Exchange) -> None:
        """Send the request of an exchange. It must be followed by `body`."""
        assert self._transport is not None
        self._exchange, self._body = exchange, self._loop.create_future()
        self._lines, self._unread = [], 0
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(self._read_timeout_s, self._check_silence)
        exchange.is_sent, self.is_usable = True, False
        self._transport.write(exchange.message)

    async def body(self) -> bytes:
        """Return the body of the answer, decompressed. Raises one of `exchange.FAILURES`."""
        assert self._body is not None
        try:
            return await self._body
        finally:
            # An error refers to the frames that it passed, and so to the body and to this connection: the cycle would
            # keep the body until the next garbage collection.
            self._body = None
            if self._timer is not None:
                self._timer.cancel()

    def close(self) -> None:
        """Close the connection; an exchange under way is given up."""
        self._exchange, self.is_usable = None, False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._exchange is None:  # there was no request, or its answer is complete
            self.close()
            return
        self._heard_s = self._loop.time()
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._fail(NotHttp())
        if self._unread > _LARGEST_HEAD:
            self._fail(NotHttp())

    def eof_received(self) -> None:
        """See `asyncio.Protocol`. The end is reported later, and until then a request would be lost."""
        self.is_usable = False

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        exchange, self.is_usable = self._exchange, False
        if exchange is not None and exc is None and exchange.ends_with_connection:
            self._end()
        else:
            self._fail(ConnectionResetError() if exc is None else exc)
        self._parser = None  # it refers to this object

    def on_message_begin(self) -> None:
        """Called by the parser. An answer without a request makes the connection unusable."""
        if self._exchange is None:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser. Headers behind the body are ignored."""
        if self._exchange is not None and self._exchange.head is None:
            self._lines.append((_text(name), _text(value)))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        status, lines, self._lines, self._unread = self._parser.get_status_code(), self._lines, [], 0
        # An informational answer (1xx) is followed by the final one.
        if self._exchange is None or status < 200:
            return
        try:
            self._exchange.begin_answer(status, CIMultiDictProxy(CIMultiDict(lines)))
        except UpstreamError as error:
            self._fail(error)
            return
        if self._exchange.has_no_body:  # the parser does not know the method of the request
            self._end()

    def on_body(self, data: bytes) -> None:
        """Called by the parser, with a part of the body."""
        self._unread = 0
        if self._exchange is None:
            return
        try:
            self._exchange.feed(data)
        except UpstreamError as error:
            self._fail(error)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._exchange is None or self._exchange.head is None:
            return
        transport = self._transport
        is_whole = transport is not None and not transport.is_closing() and not transport.get_write_buffer_size()
        self.is_usable = is_whole and self._parser.should_keep_alive()
        self._end()

    def _end(self) -> None:
        assert self._exchange is not None
        try:
            body = self._exchange.end_answer()
        except UpstreamError as error:
            self._fail(error)
            return
        self._exchange = None
        if self._body is not None and not self._body.done():
            self._body.set_result(body)

    def _fail(self, error: Exception) -> None:
        if self._exchange is not None and self._body is not None and not self._body.done():
            self._body.set_exception(error)
        self.close()

    def _check_silence(self) -> None:
        left_s = self._heard_s + self._read_timeout_s - self._loop.time()
        if left_s <= 0:
            self._fail(TimeoutError())
        else:
            self._timer = self._loop.call_later(left_s, self._check_silence)


class _Host:
    """The connections to one origin."""

    def __init__(self, most: int) -> None:
        self.room = asyncio.Semaphore(most)
        self.idle: deque[UpstreamConnection] = deque()
        """In the order in which they became idle."""
        self.users = 0
        """Requests that have a connection or wait for one."""


class ConnectionPool:
    """Connections to all hosts, within the limits of `settings`."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self._settings = settings
        self._room = asyncio.Semaphore(settings.connections)
        self._hosts: dict[Origin, _Host] = {}
        self._open = 0
        """Connections in use, idle ones, and ones that are being opened."""
        self._is_closed = False
        self._sweep: asyncio.TimerHandle | None = None
        self._addresses: dict[tuple[str, int], tuple[float, list[Any]]] = {}
        """When they expire, and what was found."""
        self._lookups: dict[tuple[str, int], asyncio.Task[list[Any]]] = {}
        """Lookups under way; requests to the same host share one."""

    @asynccontextmanager
    async def connection(self, origin: Origin, guard: AddressGuard | None) -> AsyncGenerator[UpstreamConnection]:
        """Provide a connection for one request; wait for it while too many are in use.

        After the block it is kept for the next request, or closed if its exchange is not complete.
        """
        host = self._hosts.get(origin)
        if host is None:
            host = self._hosts[origin] = _Host(self._settings.connections_per_host)
        host.users += 1
        try:
            # Only requests that have room at their host wait for room in the pool.
            async with host.room, self._room:
                connection = self._take(host) or await self._connect(origin, guard)
                try:
                    yield connection
                finally:
                    self._put_back(host, connection)
        finally:
            host.users -= 1
            self._forget_unused(origin, host)

    async def close(self) -> None:
        """Close all idle connections. Those in use are closed after their exchange."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for host in self._hosts.values():
            for connection in host.idle:
                connection.close()
        self._hosts.clear()
        await asyncio.sleep(0)  # transports report their end in the next iteration of the loop

    def _take(self, host: _Host) -> UpstreamConnection | None:
        """Remove and return the idle connection that was used last, if one is left."""
        while host.idle:
            connection = host.idle.pop()
            if connection.is_usable:
                return connection
            self._open -= 1
        return None

    def _put_back(self, host: _Host, connection: UpstreamConnection) -> None:
        if self._is_closed or not connection.is_usable:
            connection.close()
            self._open -= 1
            return
        loop = asyncio.get_running_loop()
        connection.idle_since_s = loop.time()
        host.idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._settings.keep_alive.total_seconds(), self._close_old)

    def _close_old(self) -> None:
        """Close connections that were idle for too long, and come back when the next ones are."""
        keep_s, loop = self._settings.keep_alive.total_seconds(), asyncio.get_running_loop()
        now_s, next_s, self._sweep = loop.time(), None, None
        for origin, host in list(self._hosts.items()):
            while host.idle and host.idle[0].idle_since_s + keep_s <= now_s:
                self._close_oldest(host)
            if host.idle:
                next_s = min(next_s or host.idle[0].idle_since_s, host.idle[0].idle_since_s)
            self._forget_unused(origin, host)
        if next_s is not None:
            self._sweep = loop.call_at(next_s + keep_s, self._close_old)

    def _close_oldest(self, host: _Host) -> None:
        host.idle.popleft().close()
        self._open -= 1

    def _forget_unused(self, origin: Origin, host: _Host) -> None:
        if not host.users and not host.idle and self._hosts.get(origin) is host:
            del self._hosts[origin]

    async def _connect(self, origin: Origin, guard: AddressGuard | None) -> UpstreamConnection:
        """Open a connection; where too many are open, the one that was idle the longest is closed."""
        if self._open >= self._settings.connections:
            idle = [host for host in self._hosts.values() if host.idle]
            if idle:
                self._close_oldest(min(idle, key=lambda host: host.idle[0].idle_since_s))
        self._open += 1
        try:
            return await self._open_connection(origin, guard)
        except BaseException:
            self._open -= 1
            raise

    async def _open_connection(self, origin: Origin, guard: AddressGuard | None) -> UpstreamConnection:
        addresses = await self._resolve(origin.host, origin.port)
        loop, is_encrypted = asyncio.get_running_loop(), origin.scheme == "https"
        async with asyncio.timeout(self._settings.connect_timeout.total_seconds()):
            connected = await start_connection(
                addresses,
                happy_eyeballs_delay=_NEXT_ADDRESS_S,
                interleave=1,
                socket_factory=partial(open_socket, guard),
            )
            _, connection = await loop.create_connection(
                lambda: UpstreamConnection(self._settings.read_timeout.total_seconds()),
                sock=connected,
                ssl=_tls() if is_encrypted else None,
                server_hostname=origin.host.rstrip(".") if is_encrypted else None,
            )
        return connection

    async def _resolve(self, host: str, port: int) -> list[Any]:
        """Return the addresses of a host. Raises `NumericHost` for an address in a form that hides it."""
        if is_address(host):
            return [_address(host, port)]
        if parse(host) is not None:
            raise NumericHost
        found = self._addresses.get((host, port))
        if found is not None and asyncio.get_running_loop().time() < found[0]:
            return found[1]
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = self._lookups[host, port] = asyncio.create_task(self._look_up(host, port), context=Context())
            lookup.add_done_callback(lambda _: self._lookups.pop((host, port)))
        # It goes on if a request is cancelled, since others wait for it.
        return await asyncio.shield(lookup)

    async def _look_up(self, host: str, port: int) -> list[Any]:
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        except UnicodeError:  # a label that is empty or too long
            raise socket.gaierror(socket.EAI_NONAME, "invalid name") from None
        if len(self._addresses) >= _MOST_HOSTS:
            self._addresses.clear()
        self._addresses[host, port] = (loop.time() + self._settings.dns_cache.total_seconds(), addresses)
        return addresses


def _address(host: str, port: int) -> tuple[Any, ...]:
    if ":" in host:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


def _text(line: bytes) -> str:
    """Text that every database and log accepts: headers such as ETag are stored, and a reason may quote others."""
    return line.strip(b" \t").replace(b"\0", b"").decode("utf-8", "replace")


@cache
def _tls() -> ssl.SSLContext:
    """Trusts the certificates of the system. Loaded at the first use, because that takes long."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
