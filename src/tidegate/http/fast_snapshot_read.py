"""The short way for what is asked most: a snapshot that this process holds, asked for plainly.

Such a request is answered where its bytes arrive, without an application, tasks or objects for it. It has to be whole,
and the only one; it may have no body, no query but `wait`, and nothing escaped in its address. Where the snapshot is
not held, or is waited for, the connection waits in the lobby. Everything else, and everything that is refused, takes
the long way, which knows all rules. Both answer alike, as a test compares.
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
from tidegate.http.request_coalescing import Lobby
from tidegate.systems.snapshots.local import Place
from tidegate.systems.snapshots.query import SnapshotAnswer, SnapshotReader

ROUTE = "/v1/snapshots/{kind}/{key}"
_BEGIN = b"GET /v1/snapshots/"
_LINE_END = b" HTTP/1.1"
_HEAD_END = b"\r\n\r\n"
_LONGEST_HEAD = 8 * 1024
_OURS = frozenset({"dead", "prefetch"})
_WAIT = re.compile(rb"wait=([1-9][0-9]?(?:\.[0-9]{1,3})?)")


class Call(NamedTuple):
    """A request that can be answered on the short way."""

    place: Place
    wait_s: float
    """How long its sender wants to wait for a refresh."""
    known: bytes | None
    """What was sent as If-None-Match."""
    began: float
    is_secure: bool
    """Whether its sender speaks TLS, with whoever stands before us."""


class Express:
    """Answers at once, has it answered soon, or not at all."""

    def __init__(self, reader: SnapshotReader, door: Door, lobby: Lobby, *, longest_wait_s: float) -> None:
        self.lobby = lobby
        self._reader, self._door, self._longest_wait_s = reader, door, longest_wait_s
        self._counts = {status: metrics.HTTP_REQUESTS.labels(ROUTE, "GET", str(status)) for status in (200, 304)}
        self._seconds = metrics.HTTP_REQUEST_SECONDS.labels(ROUTE)
        self._second, self._date = 0, b""

    def read(self, data: bytes, peer: str | None = None) -> Call | None:
        """A whole request from the address `peer`; None: let it take the long way."""
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
        """The response; None: that takes a moment, which is for the lobby."""
        found = self._reader.held(*call.place)
        if found is None or (call.wait_s and not found.is_settled):
            return None
        return self.response(call, found)

    def wait(self, call: Call, exchange: Exchange) -> Pending:
        """Answer when a look at the server, or a refresh, brought something."""
        waiting = _Waiting(self, call, exchange)
        self.lobby.join(call.place, waiting)
        return waiting

    def response(self, call: Call, found: SnapshotAnswer) -> Response:
        """The same, of what was found."""
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
        """Whether the door has no objection; if it has, it says so on the long way."""
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
    return None if place[0] in _OURS else (place, float(wait[1]) if wait else 0.0)


class _Waiting:
    """A connection that waits for a look at the server, or for a refresh; see `request_coalescing.Visitor`."""

    def __init__(self, express: Express, call: Call, exchange: Exchange) -> None:
        self._express, self._call, self._exchange = express, call, exchange
        self.deadline = call.began + call.wait_s

    def release(self, answer: SnapshotAnswer) -> None:
        """Send the answer."""
        self._exchange.respond(self._express.response(self._call, answer))

    def divert(self) -> None:
        """Let the application answer."""
        self._exchange.decline()

    def leave(self) -> None:
        """The connection is closed."""
        self._express.lobby.leave(self._call.place, self)
