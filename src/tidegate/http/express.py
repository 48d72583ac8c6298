"""The short way for what is asked most: a snapshot that this process holds, asked for plainly.

Such a request is answered where its bytes arrive, without an application, tasks or objects for it. It has to be whole,
and the only one; it may have no body, no query and nothing escaped in its address. Everything else, and everything that
is refused, takes the long way, which knows all rules. Both answer alike, as a test compares.
"""

import time
from email.utils import formatdate

from starlette.datastructures import Headers

from tidegate.http.door import Door
from tidegate.http.problems import Trouble
from tidegate.kernel.ids import new_id
from tidegate.snapshots.query import SnapshotReader
from tidegate.telemetry import metrics

ROUTE = "/v1/snapshots/{kind}/{key}"
_BEGIN = b"GET /v1/snapshots/"
_LINE_END = b" HTTP/1.1"
_HEAD_END = b"\r\n\r\n"
_LONGEST_HEAD = 8 * 1024
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")
_OURS = frozenset({"dead", "prefetch"})
_NOT_PLAIN = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer"})
_TOKEN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")

Fields = dict[bytes, bytes]


class Express:
    """Answers at once, or not at all."""

    def __init__(self, reader: SnapshotReader, door: Door) -> None:
        self._reader, self._door = reader, door
        self._counts = {status: metrics.HTTP_REQUESTS.labels(ROUTE, "GET", str(status)) for status in (200, 304)}
        self._seconds = metrics.HTTP_REQUEST_SECONDS.labels(ROUTE)
        self._second, self._date = 0, b""

    def answer(self, data: bytes) -> bytes | None:
        """The whole response to a whole request; None: let it take the long way."""
        if not data.startswith(_BEGIN) or len(data) > _LONGEST_HEAD or data.find(_HEAD_END) != len(data) - 4:
            return None
        began = time.monotonic()
        first, *lines = data[:-4].split(b"\r\n")
        place, fields = _place(first), _fields(lines)
        if place is None or fields is None or not self._is_admitted(place, fields):
            return None
        found = self._reader.held(*place)
        if found is None:
            return None
        tag, known = found.tag.encode(), fields.get(b"if-none-match")
        is_known = known is not None and (known == tag or tag in known.split(b", "))
        body = b"" if is_known else found.encode()
        status = 304 if is_known else 200
        self._counts[status].inc()
        self._seconds.observe(time.monotonic() - began)
        return self._head(status, tag, len(body)) + body

    def _is_admitted(self, place: tuple[str, str], fields: Fields) -> bool:
        """Whether the door has no objection; if it has, it says so on the long way."""
        try:
            self._door.admit("GET", f"/v1/snapshots/{place[0]}/{place[1]}", Headers(raw=list(fields.items())))
        except Trouble:
            return False
        return True

    def _head(self, status: int, tag: bytes, size: int) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second, self._date = now, formatdate(now, usegmt=True).encode()
        common = b"etag: %b\r\ncache-control: no-cache\r\ndate: %b\r\nx-request-id: %b\r\n" % (
            tag,
            self._date,
            new_id().encode(),
        )
        if status == 304:
            return b"HTTP/1.1 304 Not Modified\r\n" + common + b"x-content-type-options: nosniff\r\n\r\n"
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/json\r\n%b%b" % (
            size,
            common,
            b"x-content-type-options: nosniff\r\n\r\n",
        )


def _place(first: bytes) -> tuple[str, str] | None:
    """The kind and the key of a request line, where both are plain."""
    if not first.endswith(_LINE_END):
        return None
    kind, _, key = first[len(_BEGIN) : -len(_LINE_END)].partition(b"/")
    if not kind or not key or not _PLAIN.issuperset(kind) or not _PLAIN.issuperset(key):
        return None
    place = kind.decode(), key.decode()
    return None if place[0] in _OURS else place


def _fields(lines: list[bytes]) -> Fields | None:
    """The headers, where there is nothing unusual about them."""
    fields: Fields = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or not name or name in fields or name in _NOT_PLAIN or not _TOKEN.issuperset(name):
            return None
        fields[name] = value.strip(b" \t")
    if b"host" not in fields or fields.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    return fields
