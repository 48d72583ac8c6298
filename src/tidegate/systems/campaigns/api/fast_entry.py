"""Raw handler of campaign entries; see `tidegate.http.raw_handlers`.

Concurrent entries are sent to the server together. A request that leads to a problem is passed to the application.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.core.errors import TidegateError
from tidegate.core.telemetry import metrics
from tidegate.http.raw_handlers import (
    Admission,
    AdmittedRequest,
    Application,
    Message,
    Receive,
    Responder,
    Scope,
    Send,
    lines_of,
    received_first,
)
from tidegate.systems.campaigns.api.entries import KEY_HEADER, STATUS, NewEntry, headers_of
from tidegate.systems.campaigns.model import EntryAnswer as Answer
from tidegate.systems.campaigns.model import EntryReceipt as Entered
from tidegate.systems.campaigns.service import Campaigns

PREFIX = "/v1/campaigns/"
ROUTE = "/v1/campaigns/{campaign}/entries"
_END = "/entries"
_LONGEST_BODY = 8 * 1024
_JSON = (b"application/json", b"application/json; charset=utf-8")
_HEADERS = b"content-type: application/json\r\ncache-control: no-store\r\n"
_KEY = KEY_HEADER.lower().encode()
VARYING = frozenset({b"content-length", _KEY})
"""Headers that differ between requests."""
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(NewEntry).decode


class EntryAttempt(NamedTuple):
    """An entry as it was requested."""

    campaign: str
    user: str
    key: str | None
    data: Any


class FastEntry:
    """The raw handler of entries."""

    def __init__(
        self, application: Application, campaigns: Campaigns, admission: Admission, *, largest_body: int
    ) -> None:
        self._application, self._campaigns, self._admission = application, campaigns, admission
        self._largest = min(largest_body, _LONGEST_BODY)
        self._respond = Responder()
        self._counts = {status: metrics.HTTP_REQUESTS.labels(ROUTE, "POST", str(status)) for status in (200, 202, 409)}
        self._seconds = metrics.HTTP_REQUEST_SECONDS.labels(ROUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an entry, or pass the request on to the application."""
        began = time.monotonic()
        admitted, headers = self._admitted(scope)
        if admitted is None:
            await self._application(scope, receive, send)
            return
        message = await receive()
        attempt = self.read(scope, headers, message)
        entered = None if attempt is None else await self._enter(attempt)
        # The body is consumed already, so the application receives the message again, before the rest.
        if attempt is None or entered is None or entered.answer is Answer.BUSY:
            await self._application(scope, received_first(message, receive), send)
            return
        status = STATUS[entered.answer]
        self._counts[status].inc()
        self._seconds.observe(time.monotonic() - began)
        headers_sent = headers_of(attempt.campaign, attempt.user, entered).items()
        lines = lines_of((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers_sent)
        body = msgspec.json.encode(entered)
        await self._respond(scope, send, status, lines + _HEADERS, body, is_secure=admitted.is_secure)

    def _admitted(self, scope: Scope) -> tuple[AdmittedRequest | None, Mapping[bytes, bytes]]:
        """Whether the raw handler can answer, and all headers."""
        if scope["method"] != "POST" or scope["query_string"] or not scope["path"].endswith(_END):
            return None, {}
        headers = dict(scope["headers"])
        # A repeated header is ambiguous: the application decides what it means.
        if len(headers) != len(scope["headers"]) or not self._is_plain(headers):
            return None, headers
        return self._admission(scope), headers

    def read(self, scope: Scope, headers: Mapping[bytes, bytes], message: Message) -> EntryAttempt | None:
        """The entry of a request with its body in `message`; None if the application has to answer."""
        campaign = scope["path"][len(PREFIX) : -len(_END)]
        if message.get("more_body", False) or not campaign or "/" in campaign:
            return None
        try:
            entry, sent = _decode(message.get("body", b"")), headers.get(_KEY)
            key = entry.key if sent is None else sent.decode("latin-1")
        except _UNREADABLE:
            return None
        # Header and body disagree: the application reports the problem.
        if entry.key is not None and key != entry.key:
            return None
        return EntryAttempt(campaign, entry.user, key, entry.data)

    async def _enter(self, attempt: EntryAttempt) -> Entered | None:
        """The answer of the campaign; None for a problem, which the application reports."""
        try:
            return await self._campaigns.ask(attempt.campaign, attempt.user, attempt.key, attempt.data)
        except (TidegateError, TimeoutError):
            return None

    def _is_plain(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the request has a small JSON body of known length that is sent without a prior response."""
        length = headers.get(b"content-length", b"")
        # Small bodies of known length usually arrive in one message; `read` passes all others on.
        is_small = length.isdigit() and int(length) <= self._largest
        is_json = headers.get(b"content-type", b"").lower() in _JSON
        return is_small and is_json and b"expect" not in headers and b"content-encoding" not in headers
