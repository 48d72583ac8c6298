"""One request and its answer: the checks before it is sent, its progress, and the meaning of errors at each point."""

import errno
import os
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import aiohttp
from aiohttp.client_reqrep import ClientRequest, ClientResponse
from aiohttp.connector import Connection
from yarl import URL

from tidegate.core.errors import GrantVoid
from tidegate.engine.upstream.addresses import AddressGuard, PrivateAddress, PrivateHosts
from tidegate.engine.upstream.messages import (
    AddressRefused,
    ConnectFailed,
    ConnectionBroken,
    Head,
    Phase,
    Request,
    TimedOut,
    TooLarge,
    Truncated,
    Undecodable,
    UpstreamFailed,
)

try:
    from isal import isal_zlib as fast_zlib
except ImportError:  # no wheel for this machine
    fast_zlib = None

_MOST_MEMBERS = 1000
"""Of one gzip body. Real ones have one; a crowd of empty ones costs time and brings nothing."""
_GZIP = zlib.MAX_WBITS | 16
_BARE = -zlib.MAX_WBITS
_new_inflater: Callable[[int], Any] = (fast_zlib or zlib).decompressobj
_INFLATE_ERROR: Any = (fast_zlib or zlib).error


class BodyTooLarge(Exception):
    """More than we take."""


class BodyCutShort(Exception):
    """The compressed data ends before its end."""


class BadEncoding(Exception):
    """The data is not what its encoding says, or we do not know the encoding."""


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Body:
    """Collects a body of at most `most` bytes; `encoding` is what the header Content-Encoding says."""

    def __init__(self, encoding: str | None, most: int) -> None:
        self._encoding = (encoding or "identity").strip().lower()
        if self._encoding not in ("identity", "gzip", "x-gzip", "deflate"):
            raise BadEncoding(f"the encoding {self._encoding[:40]!r} was not asked for")
        self._most = most
        self._parts: list[bytes] = []
        self._taken = self._size = self._members = 0
        self._inflater: _Inflater | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes from the wire."""
        self._taken += len(chunk)
        if self._taken > self._most:  # also what decompresses to nothing
            raise BodyTooLarge
        if self._encoding == "identity":
            self._parts.append(chunk)
        else:
            self._inflate(chunk)

    def finish(self) -> bytes:
        """Return the complete decoded body."""
        if self._inflater is not None and not self._inflater.eof:
            raise BodyCutShort
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _inflate(self, data: bytes) -> None:
        """Decompress a chunk. Raises `BodyTooLarge` and `BadEncoding`."""
        while data:
            if self._inflater is None or self._inflater.eof:
                self._inflater = self._next_member(data)
            # One byte more than allowed is enough to know, so a bomb costs no more memory than an honest body.
            room = self._most - self._size + 1
            try:
                part = self._inflater.decompress(data, room)
            except _INFLATE_ERROR:
                raise BadEncoding(f"the body is not {self._encoding}") from None
            self._size += len(part)
            if self._size > self._most:
                raise BodyTooLarge
            if part:
                self._parts.append(part)
            data = self._inflater.unused_data if self._inflater.eof else b""

    def _next_member(self, data: bytes) -> _Inflater:
        self._members += 1
        if self._members > 1 and (self._encoding == "deflate" or self._members > _MOST_MEMBERS):
            raise BadEncoding(f"there is more after the end of the {self._encoding} data")
        if self._encoding != "deflate":
            return _new_inflater(_GZIP)
        # Some servers send deflate without its wrapping, which would begin with a method of 8.
        return _new_inflater(zlib.MAX_WBITS if data[0] & 0x0F == 8 else _BARE)


_NOT_PUBLIC = "the host has no public address; `upstream.private_hosts` lists those that may be called all the same"
FAILURES = (aiohttp.ClientError, OSError, BadEncoding, BodyCutShort, BodyTooLarge)
"""Everything that `Exchange.explain` explains. A timeout is an OSError."""


class CheckedRequest(ClientRequest):
    """A request that is checked when it has its connection, right before its first byte is written.

    Opening a connection can take long. A permit that was checked before could have expired by then.
    """

    sent = False
    on_send: Callable[[], None] | None = None
    on_sent: Callable[[], None] | None = None
    guard: AddressGuard | None = None

    async def send(self, conn: Connection) -> ClientResponse:
        """Send the request, or return the connection unused for the next request."""
        try:
            if self.guard is not None:
                # The connection may have been opened for another request.
                self.guard.require(_peer(conn))
            if self.on_send is not None:
                self.on_send()
        except (GrantVoid, PrivateAddress):
            conn.release()
            raise
        self.sent = True
        try:
            return await super().send(conn)
        finally:
            if self.on_sent is not None:
                self.on_sent()


def _why(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection. The texts of aiohttp and asyncio contain the address, which is omitted here."""
    cause = error.os_error
    if isinstance(cause, ssl.SSLError):
        return getattr(cause, "verify_message", None) or cause.reason or "the TLS handshake failed"
    if isinstance(error, aiohttp.ClientConnectorDNSError) or isinstance(cause, socket.gaierror):
        return "the name of the host cannot be resolved"
    known = cause.errno if cause.errno in errno.errorcode else None
    return type(cause).__name__ if known is None else os.strerror(known)


def _peer(conn: Connection) -> str:
    peer = None if conn.transport is None else conn.transport.get_extra_info("peername")
    return "" if peer is None else str(peer[0])


class _BrokeBeforeAnswer(aiohttp.ClientError):
    """Replaces errors after which aiohttp would send the request again without a permit."""


class Exchange:
    """A request from its beginning to its answer. `on_send` is called right before it leaves, and may raise
    `GrantVoid`: then nothing is sent. `on_sent` is called right after it left."""

    def __init__(
        self,
        request: Request,
        on_send: Callable[[], None],
        private: PrivateHosts,
        *,
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        self.request = request
        self.url = URL(request.url, encoded=True)
        self.head: Head | None = None
        self.guard = AddressGuard(private, self.url.host or "") if request.public_only else None
        self._on_send, self._on_sent = on_send, on_sent
        self._sending: ClientRequest | None = None

    async def send_once(
        self, sending: ClientRequest, send: Callable[[ClientRequest], Awaitable[ClientResponse]]
    ) -> ClientResponse:
        """Middleware of aiohttp: records the request and prevents aiohttp from sending it twice."""
        self._sending = sending
        if isinstance(sending, CheckedRequest):
            sending.on_send, sending.on_sent, sending.guard = self._on_send, self._on_sent, self.guard
        try:
            return await send(sending)
        # A subclass of the errors below, but there was no connection, so aiohttp does not send again.
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
            raise _BrokeBeforeAnswer from None

    def explain(self, error: Exception) -> UpstreamFailed:
        """Convert an error, depending on whether the request was sent and the answer had started."""
        if self.guard is not None and self.guard.refused is not None and self.head is None and not self._has_left:
            return self._failed(AddressRefused, _NOT_PUBLIC)
        match error:
            case aiohttp.InvalidURL():
                return self._failed(AddressRefused, "the host is a number, not an address in the usual form")
            case aiohttp.ClientConnectorError():
                return self._failed(ConnectFailed, f"no connection: {_why(error)}")
            case TimeoutError():
                return TimedOut(self.request, self._phase, was_sent=self._was_sent, head=self.head)
            case BodyTooLarge():
                return self._failed(TooLarge, "the body is larger than `largest_body`")
            case BadEncoding():
                return self._failed(Undecodable, str(error))
            case aiohttp.ClientResponseError() if self.head is None:
                # Its text quotes the data, and it holds the request headers: neither is shown.
                return self._failed(Undecodable, "the answer is not HTTP")
            case _ if self.head is None:
                return self._failed(ConnectionBroken, "the connection ended before an answer came")
            case _:
                return self._failed(Truncated, "the body ended too early")

    @property
    def _has_left(self) -> bool:
        return isinstance(self._sending, CheckedRequest) and self._sending.sent

    @property
    def _was_sent(self) -> bool | None:
        if self.head is not None:
            return True
        # Without an answer it is unknown whether the upstream got the request.
        return None if self._has_left else False

    @property
    def _phase(self) -> Phase:
        if self.head is not None:
            return "body"
        return "answer" if self._has_left else "connect"

    def _failed(self, kind: type[UpstreamFailed], reason: str) -> UpstreamFailed:
        return kind(self.request, reason, was_sent=self._was_sent, head=self.head)
