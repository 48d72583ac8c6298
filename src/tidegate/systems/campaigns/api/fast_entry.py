"""Fast handler of campaign entries; see `tidegate.http.fast_path`.

Entries that arrive at the same time are sent to the server together. An answer that is a problem is left to the
application.
"""

import asyncio
import time
from email.utils import formatdate
from typing import NamedTuple

import msgspec
from starlette.datastructures import Headers

from tidegate.core.errors import InvalidArgument
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
from tidegate.systems.campaigns.api.entries import KEY_HEADER, STATUS, NewEntry, headers_of
from tidegate.systems.campaigns.campaign import Answer, Entered
from tidegate.systems.campaigns.campaigns import Campaigns

ROUTE = "/v1/campaigns/{campaign}/entries"
_BEGIN, _END = b"POST /v1/campaigns/", b"/entries HTTP/1.1"
_HEAD_END = b"\r\n\r\n"
_LONGEST = 8 * 1024
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"content-encoding"})
_JSON = (b"application/json", b"application/json; charset=utf-8")
_KEY = KEY_HEADER.lower().encode()
_REASONS = {200: b"OK", 202: b"Accepted", 409: b"Conflict"}
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(NewEntry).decode


class Attempt(NamedTuple):
    """An entry that is at the door."""

    campaign: str
    user: str
    began: float
    answered: asyncio.Future[Entered]
    is_secure: bool


class FastEntry:
    """The fast handler of entries; see `FastHandler`."""

    def __init__(self, campaigns: Campaigns, door: Door, *, largest_body: int) -> None:
        self._campaigns, self._door, self._largest = campaigns, door, min(largest_body, _LONGEST)
        self._counts = {status: metrics.HTTP_REQUESTS.labels(ROUTE, "POST", str(status)) for status in _REASONS}
        self._seconds = metrics.HTTP_REQUEST_SECONDS.labels(ROUTE)
        self._second, self._told = 0, ""

    def read(self, data: bytes, peer: str | None = None) -> Attempt | None:
        """A whole request from the address `peer`, whose entry is at the door from here on; None: let it take the long
        way."""
        if not data.startswith(_BEGIN) or len(data) > _LONGEST:
            return None
        began = time.monotonic()
        head, is_whole, body = data.partition(_HEAD_END)
        first, *lines = head.split(b"\r\n")
        if not is_whole or not first.endswith(_END) or has_odd_signs(head, line_ends=len(lines)):
            return None
        campaign, fields = first[len(_BEGIN) : -len(_END)], plain_fields(lines, _UNUSUAL)
        if not campaign or not PLAIN.issuperset(campaign) or fields is None or not self._fits(fields, body):
            return None
        return self._enter(campaign.decode(), fields, body, began, peer)

    def answer(self, call: Attempt) -> Response | None:
        """None: every entry is answered by the server."""
        del call

    def wait(self, call: Attempt, exchange: Exchange) -> Pending:
        """Answer when the server did."""
        return _Entering(self, call, exchange)

    def response(self, attempt: Attempt) -> Response | None:
        """What is told; None: that is a problem, which the long way explains."""
        entered = attempt.answered.result()
        if entered.answer is Answer.BUSY:
            return None
        status, body = STATUS[entered.answer], msgspec.json.encode(entered)
        self._counts[status].inc()
        self._seconds.observe(time.monotonic() - attempt.began)
        headers = {
            **headers_of(attempt.campaign, attempt.user, entered),
            "content-length": str(len(body)),
            "content-type": "application/json",
            "date": self._date(),
            "x-request-id": new_id(),
            "cache-control": "no-store",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
        armour = SECURITY_HEADERS_OVER_TLS if attempt.is_secure else SECURITY_HEADERS
        return (b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, _REASONS[status], lines, armour), body)

    def _date(self) -> str:
        now = int(time.time())
        if now != self._second:
            self._second, self._told = now, formatdate(now, usegmt=True)
        return self._told

    def _fits(self, fields: Fields, body: bytes) -> bool:
        """Whether the body is there, and is what it is said to be."""
        length = fields.get(b"content-length", b"")
        is_there = length.isdigit() and int(length) == len(body) <= self._largest
        return is_there and fields.get(b"content-type", b"").lower() in _JSON

    def _enter(self, campaign: str, fields: Fields, body: bytes, began: float, peer: str | None) -> Attempt | None:
        try:
            headers = Headers(raw=list(fields.items()))
            path = f"/v1/campaigns/{campaign}/entries"
            self._door.admit_at_once("POST", path, headers, peer).require(Role.OPERATE)
            entry, sent = _decode(body), fields.get(_KEY)
            key = entry.key if sent is None else sent.decode("latin-1")
            if entry.key is not None and key != entry.key:
                return None
            answered = self._campaigns.ask(campaign, entry.user, key, entry.data)
        except (Trouble, InvalidArgument, *_UNREADABLE):
            return None
        return Attempt(campaign, entry.user, began, answered, is_secure(fields))


class _Entering:
    """A connection whose entry was sent to the server."""

    def __init__(self, handler: FastEntry, attempt: Attempt, exchange: Exchange) -> None:
        self._handler, self._attempt, self._exchange = handler, attempt, exchange
        self._is_gone = False
        attempt.answered.add_done_callback(self._tell)

    def leave(self) -> None:
        """The connection is closed. The entry stands: a request with the same key is answered with it."""
        self._is_gone = True

    def _tell(self, answered: asyncio.Future[Entered]) -> None:
        # Read even when the connection is closed: an exception that is never retrieved is logged as a defect.
        response = None if answered.cancelled() or answered.exception() else self._handler.response(self._attempt)
        if self._is_gone:
            return
        if response is None:
            self._exchange.decline()
        else:
            self._exchange.respond(response)
