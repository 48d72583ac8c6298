"""Raw handler of joins and of places in line; see `tidegate.http.raw_handlers`.

Concurrent visitors of a room share calls of its scripts. A request that leads to a problem is passed to the
application, which repeats it: a repeated join finds the visitor, and a repeated read is another sign of life.
"""

import re
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tidegate.core.errors import TidegateError
from tidegate.core.telemetry import metrics
from tidegate.http.access import Access
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Role
from tidegate.http.raw_handlers import (
    Admission,
    AdmittedRequest,
    Application,
    Message,
    Receive,
    Responder,
    Scope,
    Send,
    has_small_json,
    received_first,
)
from tidegate.http.sessions import COOKIE as SESSION_COOKIE
from tidegate.systems.waiting_room import WaitingRooms
from tidegate.systems.waiting_room.api.places import COOKIE, HEADER, AdmissionRates, RoomPlace, place_of
from tidegate.systems.waiting_room.api.rooms import Arrival

PREFIX = "/v1/rooms/"
PLACE, ENTRIES = "/v1/rooms/{room}/place", "/v1/rooms/{room}/entries"
_PLACE_END, _ENTRIES_END = "/place", "/entries"
_LONGEST_BODY = 4 * 1024
_HEADERS = b"content-type: application/json\r\ncache-control: no-store\r\n"
_PASS, _SESSION = HEADER.lower().encode(), SESSION_COOKIE.encode()
_TOKEN = re.compile(rb"[\w.-]+", re.ASCII)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(Arrival).decode
_encode = msgspec.json.Encoder().encode


class PlaceCall(NamedTuple):
    """A join or a read of a place that the raw handler can answer."""

    route: str
    room: str
    admitted: AdmittedRequest
    token: str = ""
    """The pass of a read."""
    arrival: Arrival | None = None
    """The visitor that joins."""


class FastPlace:
    """The raw handler of `GET /v1/rooms/{room}/place` and `POST /v1/rooms/{room}/entries`."""

    def __init__(
        self,
        application: Application,
        waiting_rooms: WaitingRooms,
        paces: AdmissionRates,
        access: Access,
        *,
        largest_body: int,
    ) -> None:
        self._application, self._waiting_rooms, self._paces = application, waiting_rooms, paces
        self._largest = min(largest_body, _LONGEST_BODY)
        # The pass is no API key. Requests with the cookie of a session are passed to the application before.
        self._visitors = Admission(Authenticator(access, [PLACE]), None, varying={_PASS, b"cookie"})
        self._operators = Admission(Authenticator(access, ()), Role.OPERATE, varying={b"content-length"})
        self._respond = Responder()
        self._metrics = {
            route: (metrics.HTTP_REQUESTS.labels(route, method, "200"), metrics.HTTP_REQUEST_SECONDS.labels(route))
            for route, method in ((PLACE, "GET"), (ENTRIES, "POST"))
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on to the application."""
        began = time.monotonic()
        call, receive = await self._read(scope, receive)
        place = None if call is None else await self._place(call)
        if call is None or place is None:
            await self._application(scope, receive, send)
            return
        count, seconds = self._metrics[call.route]
        count.inc()
        seconds.observe(time.monotonic() - began)
        await self._respond(scope, send, 200, _HEADERS, _encode(place), is_secure=call.admitted.is_secure)

    async def _read(self, scope: Scope, receive: Receive) -> tuple["PlaceCall | None", Receive]:
        """The join or read that is requested, or None if the application has to answer; and what still has to be
        received."""
        headers = dict(scope["headers"])
        # A repeated header is ambiguous: the application decides what it means.
        if scope["query_string"] or len(headers) != len(scope["headers"]):
            return None, receive
        match scope["method"]:
            case "GET" if (room := _room_in(scope, _PLACE_END)) and (token := _pass_in(headers, room)):
                admitted = self._visitors(scope)
                if admitted is not None and not admitted.has_body:
                    return PlaceCall(PLACE, room, admitted, token), receive
            case "POST" if (room := _room_in(scope, _ENTRIES_END)) and has_small_json(headers, self._largest):
                admitted = self._operators(scope)
                if admitted is not None:
                    message = await receive()
                    # The body is consumed, so the application receives the message again, before the rest.
                    receive, arrival = received_first(message, receive), _arrival_in(message)
                    if arrival is not None:
                        return PlaceCall(ENTRIES, room, admitted, arrival=arrival), receive
            case _:
                pass
        return None, receive

    async def _place(self, call: "PlaceCall") -> RoomPlace | None:
        """Join or read the place; None for a problem, which the application reports."""
        try:
            room, arrival = await self._waiting_rooms.room(call.room), call.arrival
            found = await (room.status(call.token) if arrival is None else room.join(arrival.user, arrival.shown))
            return place_of(room, found, await self._paces.of(room))
        except (TidegateError, TimeoutError):
            return None


def _room_in(scope: Scope, end: str) -> str | None:
    """The room in a path; None if the application has to answer."""
    path = scope["path"]
    name = path[len(PREFIX) : -len(end)] if path.endswith(end) else ""
    return None if not name or "/" in name else name


def _pass_in(headers: Mapping[bytes, bytes], room: str) -> str | None:
    """The pass of a request; None if the application has to answer."""
    cookies = headers.get(b"cookie", b"")
    if _SESSION in cookies:
        return None
    token = headers.get(_PASS)
    if not token:
        found = [part.strip().partition(b"=") for part in cookies.split(b";")]
        values = [value for name, _, value in found if name == COOKIE.format(room=room).encode()]
        token = values[0] if len(values) == 1 else b""
    # No quotes and percent signs, which need the rules of cookies.
    return token.decode() if _TOKEN.fullmatch(token) else None


def _arrival_in(message: Message) -> Arrival | None:
    """The body of a join; None if the application has to answer."""
    if message.get("more_body", False):
        return None
    try:
        return _decode(message.get("body", b""))
    except _UNREADABLE:
        return None
