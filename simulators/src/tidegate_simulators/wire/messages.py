"""Requests as they come over the wire, and the heads of replies: as much of HTTP/1.1 as an honest server needs."""

import re
import time
from collections.abc import Callable
from email.utils import formatdate
from enum import StrEnum
from functools import lru_cache
from http import HTTPStatus

import msgspec

LARGEST_HEAD = 16_384
LARGEST_BODY = 262_144
_LONGEST_TARGET = 8_192
_END = b"\r\n\r\n"
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(rb"HTTP/\d\.\d")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_USUAL = (b"GET", b"HEAD", b"POST", b"DELETE")
_ONLY_ONCE = (b"content-length", b"host", b"transfer-encoding")
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class BadRequest(Exception):
    """What came cannot be answered other than with `status`, and nothing after it can be understood."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Spoiling(StrEnum):
    """How a reply can be spoilt on its way."""

    TIMEOUT = "timeout"  # no answer for a long time, then none
    RESET = "reset"  # the connection breaks instead of an answer
    TRUNCATED = "truncated"  # fewer bytes than Content-Length promised
    SLOW = "slow"  # the body comes in drops


_WITHOUT_STATUS = (Spoiling.TIMEOUT, Spoiling.RESET)


class Headers(msgspec.Struct, frozen=True, gc=False):
    """A request's headers, and what they mean for the connection."""

    fields: dict[bytes, bytes]
    """By their names in lower case."""
    takes_gzip: bool
    body_size: int
    connection: bytes
    has_host: bool
    expects_continue: bool


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request without its body."""

    method: bytes
    path: bytes
    query: bytes
    headers: Headers
    keep_alive: bool
    size: int
    """How many bytes its head takes."""
    is_old: bool
    """HTTP/1.0, which has to be told that the connection stays open."""


class Reply(msgspec.Struct):
    """What is to be sent, how late, and in which bad way."""

    status: int
    pieces: list[bytes]
    size: int
    headers: bytes = b"Content-Type: application/json\r\n"
    pause_s: float = 0
    spoiling: Spoiling | None = None
    on_end: Callable[[], None] | None = None
    """Called once, when it has been sent or will not be, or when the client has ended its side."""

    @property
    def outcome(self) -> int | str:
        """Its status; how it was spoilt, where the client sees none."""
        return self.spoiling if self.spoiling is not None and self.spoiling in _WITHOUT_STATUS else self.status


def read_request(buffer: bytes) -> Request | None:
    """The first request in the buffer; None: its head is not yet complete. Raises `BadRequest`."""
    end = buffer.find(_END)
    if end > LARGEST_HEAD or (end < 0 and len(buffer) > LARGEST_HEAD):
        raise BadRequest(431, "the head of the request is too large")
    if end < 0:
        return None
    line, _, block = buffer[:end].partition(b"\r\n")
    method, _, rest = line.partition(b" ")
    target, _, version = rest.partition(b" ")
    if version != b"HTTP/1.1" or method not in _USUAL or not target.startswith(b"/") or len(target) > _LONGEST_TARGET:
        target = _unusual_target(method, target, version)
    headers = read_headers(block)
    old = version == b"HTTP/1.0"
    if not headers.has_host and not old:
        raise BadRequest(400, "HTTP/1.1 needs a header Host")
    keep_alive = b"keep-alive" in headers.connection if old else b"close" not in headers.connection
    path, _, query = target.partition(b"?")
    return Request(method, path, query, headers, keep_alive, end + len(_END), old)


def _unusual_target(method: bytes, target: bytes, version: bytes) -> bytes:
    """The path of a request whose first line is not the usual one, if it is one at all."""
    if not _METHOD.fullmatch(method) or not target or not _VERSION.fullmatch(version):
        raise BadRequest(400, "the first line is no request")
    if not version.startswith(b"HTTP/1."):
        raise BadRequest(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    if len(target) > _LONGEST_TARGET:
        raise BadRequest(414, "the address is too long")
    if target.startswith(b"/"):
        return target
    scheme, _, rest = target.partition(b"://")
    if scheme.lower() not in (b"http", b"https"):
        raise BadRequest(400, "the address is neither a path nor a URL")
    return b"/" + rest.partition(b"/")[2]


@lru_cache(maxsize=256)
def read_headers(block: bytes) -> Headers:
    """The headers in a block of lines. Clients send the same ones again and again, so some are remembered."""
    found: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n") if block else ():
        match = _HEADER.fullmatch(line)
        if match is None:
            raise BadRequest(400, "a header cannot be read")
        name, value = match[1].lower(), match[2].rstrip(b" \t")
        if name in found:
            if name in _ONLY_ONCE:
                raise BadRequest(400, f"there is more than one header {name.decode()}")
            value = found[name] + b", " + value
        found[name] = value
    return Headers(
        fields=found,
        takes_gzip=_takes_gzip(found.get(b"accept-encoding", b"").lower()),
        body_size=_body_size(found),
        connection=found.get(b"connection", b"").lower(),
        has_host=b"host" in found,
        expects_continue=found.get(b"expect", b"").lower() == b"100-continue",
    )


def _body_size(headers: dict[bytes, bytes]) -> int:
    if b"transfer-encoding" in headers:
        raise BadRequest(411, "a body must say how long it is")
    text = headers.get(b"content-length", b"0")
    if not text.isdigit():
        raise BadRequest(400, "Content-Length is no number")
    if len(text) > 18 or int(text) > LARGEST_BODY:
        raise BadRequest(413, "the body is too large")
    return int(text)


def _takes_gzip(accepted: bytes) -> bool:
    """Whether Accept-Encoding allows gzip, by its name or as one of all, with a weight that is not zero."""
    weights = {b"gzip": 0.0, b"*": 0.0}
    for part in accepted.split(b","):
        coding, _, parameter = part.partition(b";")
        weight = parameter.strip().partition(b"q=")[2]
        try:
            weights[coding.strip()] = float(weight) if weight else 1.0
        except ValueError:
            weights[coding.strip()] = 0.0
    named = b"gzip" in accepted
    return (weights[b"gzip"] if named else weights[b"*"]) > 0


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


def head_of(reply: Reply, request: Request | None, server: bytes) -> bytes:
    """The head of a reply, up to the empty line; no request means that the connection ends with it."""
    if request is None or not request.keep_alive:
        connection = b"Connection: close\r\n"
    else:
        connection = b"Connection: keep-alive\r\n" if request.is_old else b""
    length = b"" if reply.status == 304 else b"Content-Length: %d\r\n" % reply.size
    return b"HTTP/1.1 %d %b\r\nServer: %b\r\nDate: %b\r\n%b%b%b\r\n" % (
        reply.status,
        _PHRASES[reply.status],
        server,
        _date(int(time.time())),
        reply.headers,
        length,
        connection,
    )


def error(status: int, code: str, message: str, headers: bytes = b"") -> Reply:
    """A reply that says what is wrong."""
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return Reply(status, [body], len(body), b"Content-Type: application/json\r\n" + headers)


def is_known(wanted: bytes, tag: bytes) -> bool:
    """Whether If-None-Match names this version."""
    return wanted == b"*" or tag.removeprefix(b"W/") in [one.strip().removeprefix(b"W/") for one in wanted.split(b",")]
