"""Fast handler of snapshot reads; see `tidegate.http.fast_path`.

A snapshot in the memory of this process is answered at once. Otherwise, and when the caller waits for a refresh, the
request joins the others for the same subject; see `request_coalescing`. A request with a body, with a query other than
`wait`, or with an escaped character in its address is left to the application.
"""

import re
import time
from email.utils import formatdate
from typing import NamedTuple

from starlette.datastructures import Headers

from tidegate.core.ids import new_id
from tidegate.core.telemetry import metrics
from tidegate.http.authentication import Door
from tidegate.http.callers import Role
from tidegate.http.fast_path import (
    PLAIN,
    SECURITY_HEADERS,
    SECURITY_HEADERS_OVER_TLS,
    Exchange,
    Fields,
    Pending,
    Response,
    has_odd_signs,
    is_secure,
    plain_fields,
)
from tidegate.http.problems import Trouble
from tidegate.systems.snapshots.api.request_coalescing import ReadCoalescer
from tidegate.systems.snapshots.local import Place
from tidegate.systems.snapshots.query import SnapshotAnswer, SnapshotReader

ROUTE = "/v1/snapshots/{kind}/{key}"
_BEGIN = b"GET /v1/snapshots/"
_LINE_END = b" HTTP/1.1"
_HEAD_END = b"\r\n\r\n"
_LONGEST_HEAD = 8 * 1024
_RESERVED = frozenset({"dead", "prefetch"})
_WAIT = re.compile(rb"wait=([1-9][0-9]?(?:\.[0-9]{1,3})?)")


class Call(NamedTuple):
    """A request that the fast handler answers."""

    place: Place
    wait_s: float
    """How long the caller waits for a refresh."""
    known: bytes | None
    """The header If-None-Match."""
    began: float
    is_secure: bool
    """Whether the client uses TLS, with the proxy."""


class FastRead:
    """The fast handler of reads; see `FastHandler`."""

    def __init__(self, reader: SnapshotReader, door: Door, coalescer: ReadCoalescer, *, longest_wait_s: float) -> None:
        self.coalescer = coalescer
        self._reader, self._door, self._longest_wait_s = reader, door, longest_wait_s
        self._counts = {status: metrics.HTTP_REQUESTS.labels(ROUTE, "GET", str(status)) for status in (200, 304)}
        self._seconds = metrics.HTTP_REQUEST_SECONDS.labels(ROUTE)
        self._second, self._date = 0, b""

    def read(self, data: bytes, peer: str | None = None) -> Call | None:
        """Read a whole request from the address `peer`; None when the application has to answer it."""
        if not data.startswith(_BEGIN) or len(data) > _LONGEST_HEAD or data.find(_HEAD_END) != len(data) - 4:
            return None
        began = time.monotonic()
        first, *lines = data[:-4].split(b"\r\n")
        if has_odd_signs(data, line_ends=len(lines) + 2):
            return None
        asked, fields = _asked(first), plain_fields(lines)
        if asked is None or fields is None or not self._is_admitted(asked[0], fields, peer):
            return None
        place, wait_s = asked
        if place[0] not in self._reader.kinds:
            return None
        return Call(place, min(wait_s, self._longest_wait_s), fields.get(b"if-none-match"), began, is_secure(fields))

    def answer(self, call: Call) -> Response | None:
        """The response; None when the snapshot has to be read from the server, or waited for."""
        found = self._reader.held(*call.place)
        if found is None or (call.wait_s and not found.is_settled):
            return None
        return self.response(call, found)

    def wait(self, call: Call, exchange: Exchange) -> Pending:
        """Answer after a read from the server, or after a refresh."""
        waiting = _WaitingRead(self, call, exchange)
        self.coalescer.join(call.place, waiting)
        return waiting

    def response(self, call: Call, found: SnapshotAnswer) -> Response:
        """The response with a snapshot, or 304 when the caller has it."""
        tag = found.tag.encode()
        is_known = call.known is not None and (call.known == tag or tag in call.known.split(b", "))
        status = 304 if is_known else 200
        self._counts[status].inc()
        self._seconds.observe(time.monotonic() - call.began)
        if is_known:
            return (self._head(call, status, tag, 0),)
        begin, end = found.kept.head, found.tail
        return self._head(call, status, tag, len(begin) + len(end)), begin, end

    def _is_admitted(self, place: Place, fields: Fields, peer: str | None) -> bool:
        """Whether the caller may read; the application reports why not."""
        try:
            headers = Headers(raw=list(fields.items()))
            path = f"/v1/snapshots/{place[0]}/{place[1]}"
            self._door.admit_at_once("GET", path, headers, peer).require(Role.READ)
        except Trouble:
            return False
        return True

    def _head(self, call: Call, status: int, tag: bytes, size: int) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second, self._date = now, formatdate(now, usegmt=True).encode()
        common = b"etag: %b\r\ncache-control: no-cache\r\ndate: %b\r\nx-request-id: %b\r\n%b\r\n" % (
            tag,
            self._date,
            new_id().encode(),
            SECURITY_HEADERS_OVER_TLS if call.is_secure else SECURITY_HEADERS,
        )
        if status == 304:
            return b"HTTP/1.1 304 Not Modified\r\n" + common
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/json\r\n%b" % (size, common)


def _asked(first: bytes) -> tuple[Place, float] | None:
    """The kind and the key of a request line, where both are plain, and how long to wait."""
    if not first.endswith(_LINE_END):
        return None
    path, has_query, query = first[len(_BEGIN) : -len(_LINE_END)].partition(b"?")
    wait = _WAIT.fullmatch(query)
    if has_query and wait is None:
        return None
    kind, _, key = path.partition(b"/")
    if not kind or not key or not PLAIN.issuperset(kind) or not PLAIN.issuperset(key):
        return None
    place = kind.decode(), key.decode()
    return None if place[0] in _RESERVED else (place, float(wait[1]) if wait else 0.0)


class _WaitingRead:
    """A read that cannot be answered at once; see `WaitingRequest`."""

    def __init__(self, handler: FastRead, call: Call, exchange: Exchange) -> None:
        self._handler, self._call, self._exchange = handler, call, exchange
        self.deadline = call.began + call.wait_s

    def respond(self, answer: SnapshotAnswer) -> None:
        """Send the answer."""
        self._exchange.respond(self._handler.response(self._call, answer))

    def decline(self) -> None:
        """Pass the request on to the application."""
        self._exchange.decline()

    def leave(self) -> None:
        """The connection is closed."""
        self._handler.coalescer.leave(self._call.place, self)
