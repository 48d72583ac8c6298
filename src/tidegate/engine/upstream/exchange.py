"""One request and its answer: its progress, and the meaning of errors at each point."""

import errno
import os
import socket
import ssl
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidegate.core.clock import Clock
from tidegate.engine.upstream.addresses import AddressGuard, NumericHost, PrivateHosts
from tidegate.engine.upstream.messages import (
    AddressRefused,
    ConnectFailed,
    ConnectionBroken,
    Head,
    Headers,
    Phase,
    Request,
    TimedOut,
    TooLarge,
    Truncated,
    Undecodable,
    UpstreamFailed,
    split_url,
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


class UpstreamError(Exception):
    """Base of the errors in an answer."""


class BodyTooLarge(UpstreamError):
    """The body is larger than allowed."""


class BodyCutShort(UpstreamError):
    """The compressed data ends before its end."""


class BadEncoding(UpstreamError):
    """The data is not what its encoding says, or the encoding is unknown."""


class NotHttp(UpstreamError):
    """The answer is not HTTP/1.1, or its head is too large."""


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
_WITHOUT_BODY = (204, 304)
_SEND_LENGTH = ("PATCH", "POST", "PUT")
FAILURES = (OSError, UpstreamError)
"""Everything that `Exchange.explain` explains. A timeout is an OSError."""


def _why(error: OSError) -> str:
    """Why there is no connection. The texts of the system contain the address, which is omitted here."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", None) or error.reason or "the TLS handshake failed"
    if isinstance(error, socket.gaierror):
        return "the name of the host cannot be resolved"
    known = error.errno if error.errno in errno.errorcode else None
    return type(error).__name__ if known is None else os.strerror(known)


class Exchange:
    """A request from its beginning to its answer."""

    def __init__(
        self, request: Request, private: PrivateHosts, defaults: Mapping[str, str], *, largest_body: int, clock: Clock
    ) -> None:
        """`defaults` are headers, by their names in lower case, of requests that do not have their own."""
        self._request, self._largest_body, self._clock = request, largest_body, clock
        self.origin, host, target = split_url(request.url)
        self.guard = AddressGuard(private, self.origin.host) if request.public_only else None
        self.message = _message(request, host, target, defaults)
        """The bytes to be sent."""
        self.is_sent = False
        """Whether its first byte may have left."""
        self.head: Head | None = None
        self._body: Body | None = None

    def begin_answer(self, status: int, headers: Headers) -> None:
        """Take the head of the answer. Raises `BodyTooLarge` and `BadEncoding`, before any of the body is read."""
        url = self._request.url.partition("#")[0]
        self.head = Head(status=status, headers=headers, url=url, received_at=self._clock.now())
        if status in _WITHOUT_BODY or self.has_no_body:  # whatever its headers say
            return
        length = headers.get("Content-Length", "")
        if length.isdecimal() and int(length) > self._largest_body:
            raise BodyTooLarge
        self._body = Body(headers.get("Content-Encoding"), self._largest_body)

    @property
    def has_no_body(self) -> bool:
        """Whether the answer ends with its headers, because of the method."""
        return self._request.method == "HEAD"

    @property
    def ends_with_connection(self) -> bool:
        """Whether the body has no announced length, so that it is complete when the connection is closed."""
        headers = None if self.head is None else self.head.headers
        return headers is not None and "Content-Length" not in headers and "Transfer-Encoding" not in headers

    def feed(self, data: bytes) -> None:
        """Take a part of the body. Raises `BodyTooLarge` and `BadEncoding`."""
        if self._body is not None:
            self._body.feed(data)

    def end_answer(self) -> bytes:
        """Return the body, decompressed. Raises `BodyCutShort`."""
        return b"" if self._body is None else self._body.finish()

    def explain(self, error: Exception) -> UpstreamFailed:
        """Convert an error, depending on whether the request was sent and the answer had started. Drops the body."""
        # The error that is raised refers to this object until the next garbage collection.
        self._body = None
        if self.guard is not None and self.guard.refused is not None and not self.is_sent:
            return self._failed(AddressRefused, _NOT_PUBLIC)
        match error:
            case NumericHost():
                return self._failed(AddressRefused, "the host is a number, not an address in the usual form")
            case TimeoutError(errno=None):
                return TimedOut(self._request, self._phase, was_sent=self._was_sent, head=self.head)
            case OSError() if not self.is_sent:
                return self._failed(ConnectFailed, f"no connection: {_why(error)}")
            case BodyTooLarge():
                return self._failed(TooLarge, "the body is larger than `largest_body`")
            case BadEncoding():
                return self._failed(Undecodable, str(error))
            case NotHttp() if self.head is None:
                return self._failed(Undecodable, "the answer is not HTTP")
            case _ if self.head is None:
                return self._failed(ConnectionBroken, "the connection ended before an answer came")
            case _:
                return self._failed(Truncated, "the body ended too early")

    @property
    def _was_sent(self) -> bool | None:
        if self.head is not None:
            return True
        # Without an answer it is unknown whether the upstream got the request.
        return None if self.is_sent else False

    @property
    def _phase(self) -> Phase:
        if self.head is not None:
            return "body"
        return "answer" if self.is_sent else "connect"

    def _failed(self, kind: type[UpstreamFailed], reason: str) -> UpstreamFailed:
        return kind(self._request, reason, was_sent=self._was_sent, head=self.head)


def _message(request: Request, host: str, target: str, defaults: Mapping[str, str]) -> bytes:
    """The bytes of a request. Its own headers take precedence over the default ones."""
    own = {name.lower() for name in request.headers}
    lines = [f"{request.method} {target} HTTP/1.1"]
    if "host" not in own:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    lines += [line for name, line in defaults.items() if name not in own]
    body = request.body or b""
    if (body or request.method in _SEND_LENGTH) and "content-length" not in own:
        lines.append(f"Content-Length: {len(body)}")
        if body and "content-type" not in own:
            lines.append("Content-Type: application/octet-stream")
    return "\r\n".join((*lines, "", "")).encode() + body
