"""The HTTP server of all simulators: aiohttp.web, and replies that are late, slow, cut off or missing on demand."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from aiohttp import web

from tidegate_simulators.errors import InvalidArgument

JSON = {"Content-Type": "application/json"}
_BACKLOG = 1_024
_LONGEST_DRAIN_S = 1
_CHUNKS = 20
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class TransportFault(StrEnum):
    """How a reply can fail on its way."""

    TIMEOUT = "timeout"  # no answer for a long time, then none
    RESET = "reset"  # the connection breaks instead of an answer
    TRUNCATED = "truncated"  # fewer bytes than Content-Length
    SLOW = "slow"  # the body comes in small chunks


_WITHOUT_STATUS = (TransportFault.TIMEOUT, TransportFault.RESET)


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request; names of headers are in lower case."""

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    takes_gzip: bool


class Reply(msgspec.Struct):
    """A reply with its delay and fault."""

    status: int
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: JSON)
    delay_s: float = 0
    fault: TransportFault | None = None
    on_end: Callable[[], None] | None = None
    """Called once, when it has been sent or will not be."""

    @property
    def outcome(self) -> int | str:
        """Its status; the fault, where the client sees no status."""
        return self.fault if self.fault is not None and self.fault in _WITHOUT_STATUS else self.status


class Timing(Protocol):
    """How long faults and idle connections last."""

    @property
    def hang_s(self) -> float:
        """How long a call that times out is held before the connection is closed."""
        ...

    @property
    def drip_s(self) -> float:
        """How long a slow body takes."""
        ...

    @property
    def idle_s(self) -> float:
        """A connection without a request for so long is closed."""
        ...


class Traffic(Protocol):
    """Counts what was sent."""

    bytes_sent: int
    connections: int


class _CountingServer(web.Server):
    """Counts connections."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[Any]], traffic: Traffic, **options: Any) -> None:
        super().__init__(handler, **options)
        self._traffic = traffic

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Count a new connection of a client."""
        self._traffic.connections += 1
        super().connection_made(handler, transport)


class HttpServer:
    """Listens at one address. `handle` decides on a reply; sending it takes as long as the reply says."""

    def __init__(
        self,
        handle: Callable[[web.BaseRequest], Awaitable[Reply]],
        *,
        name: str,
        timing: Timing,
        traffic: Traffic,
    ) -> None:
        self._handle, self._name, self._timing, self._traffic = handle, name, timing, traffic
        self._closing = asyncio.Event()
        self._runner: web.ServerRunner | None = None
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Listen; from now on `url` is where. Raises `InvalidArgument` where it cannot listen."""
        server = _CountingServer(
            self._answer,
            self._traffic,
            access_log=None,
            keepalive_timeout=self._timing.idle_s,
            handler_cancellation=True,
        )
        self._closing.clear()
        self._runner = web.ServerRunner(server, shutdown_timeout=_LONGEST_DRAIN_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=_BACKLOG).start()
        except OSError as error:
            await self.stop()
            raise InvalidArgument("port", port, f"cannot listen there on {host}: {error.strerror}") from None
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def stop(self) -> None:
        """Stop listening, and break the connections of requests that are not answered yet."""
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        reply = await self._handle(request)
        try:
            await self._pause(reply.delay_s)
            return _reset(request) if self._closing.is_set() else await self._send(request, reply)
        finally:
            if reply.on_end is not None:
                reply.on_end()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()

    async def _send(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        match reply.fault:
            case TransportFault.RESET:
                return _reset(request)
            case TransportFault.TIMEOUT:
                await self._pause(self._timing.hang_s)
                return _reset(request)
            case TransportFault.TRUNCATED | TransportFault.SLOW if request.method != "HEAD":
                return await self._send_badly(request, reply)
            case _:
                response = web.Response(status=reply.status, body=reply.body, headers=self._headers(reply))
                await response.prepare(request)
                await response.write_eof()
                self._traffic.bytes_sent += len(reply.body)
                return response

    def _headers(self, reply: Reply) -> dict[str, str]:
        return {"Server": self._name, **reply.headers}

    async def _send_badly(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        """Send half of the body and close the connection, or all of it slowly."""
        response, body = web.StreamResponse(status=reply.status, headers=self._headers(reply)), reply.body
        response.content_length = len(body)
        await response.prepare(request)
        if reply.fault is TransportFault.TRUNCATED:
            await response.write(body[: len(body) // 2])
            self._traffic.bytes_sent += len(body) // 2
            if request.transport is not None:
                request.transport.close()
            return response
        chunk = max(1, -(-len(body) // _CHUNKS))
        for start in range(0, len(body), chunk):
            await response.write(body[start : start + chunk])
            self._traffic.bytes_sent += len(body[start : start + chunk])
            await self._pause(self._timing.drip_s / _CHUNKS)
        await response.write_eof()
        return response


def _reset(request: web.BaseRequest) -> web.StreamResponse:
    """Break the connection: the client sees a reset, not an orderly end."""
    transport = request.transport
    if transport is not None:
        handle: socket.socket = transport.get_extra_info("socket")
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        transport.abort()
    return web.Response()


async def read_request(request: web.BaseRequest) -> tuple[Request, bytes]:
    """Convert a request of aiohttp; return it with its body."""
    path, _, query = request.raw_path.partition("?")
    headers = {name.lower(): value for name, value in request.raw_headers}
    if not path.startswith("/"):  # an absolute URL
        path = request.path
    read = Request(
        request.method.encode(),
        path.encode("latin-1", "replace"),
        query.encode("latin-1", "replace"),
        headers,
        takes_gzip(headers.get(b"accept-encoding", b"").lower()),
    )
    return read, await request.read() if request.can_read_body else b""


def takes_gzip(accepted: bytes) -> bool:
    """Whether Accept-Encoding allows gzip, by its name or as one of all, with a weight that is not zero."""
    weights = {b"gzip": 0.0, b"*": 0.0}
    for part in accepted.split(b","):
        coding, _, parameter = part.partition(b";")
        weight = parameter.strip().partition(b"q=")[2]
        try:
            weights[coding.strip()] = float(weight) if weight else 1.0
        except ValueError:
            weights[coding.strip()] = 0.0
    return (weights[b"gzip"] if b"gzip" in accepted else weights[b"*"]) > 0


def json_reply(status: int, content: Any) -> Reply:
    """A reply with a JSON body."""
    return Reply(status, msgspec.json.encode(content))


def error(status: int, code: str, message: str, **headers: str) -> Reply:
    """A reply with an error message; `Retry_After="1"` adds a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return Reply(status, body, JSON | named)


def is_known(wanted: bytes, tag: bytes) -> bool:
    """Whether If-None-Match names this version."""
    return wanted == b"*" or tag.removeprefix(b"W/") in [one.strip().removeprefix(b"W/") for one in wanted.split(b",")]
