"""`/v1/rooms/{room}/place`: the place of a visitor. The pass authorizes the visitor; no API key is needed.

A pass is a secret: it is sent in a header or a cookie, never in a URL, and only to its owner.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Literal, Protocol

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.events import ENDED
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import ProblemType
from tidegate.http.routes import FurtherAnswer, route
from tidegate.systems.waiting_room import (
    Entering,
    Inside,
    NotPresent,
    Pace,
    PassRefused,
    Standing,
    WaitingRoom,
    WaitingRooms,
    number_of,
)
from tidegate.systems.waiting_room import (
    InLine as Waiting,
)
from tidegate.systems.waiting_room import (
    VisitorPass as Pass,
)
from tidegate.systems.waiting_room import VisitorStatus as Standpoint
from tidegate.systems.waiting_room.model import LONGEST_ROOM, ROOM_NAME
from tidegate.systems.waiting_room.passes import PassExpired

TAG = "places"
HEADER = "Tidegate-Pass"
COOKIE = "tidegate_pass_{room}"
SENT = {HEADER: "The pass that was last issued; a cookie named `tidegate_pass_` and the room's name works as well."}
_FRESH_S = 1.0

RoomName = Annotated[str, Meta(min_length=1, max_length=LONGEST_ROOM, pattern=f"^{ROOM_NAME}$")]
State = Literal["drawing", "waiting", "entering", "inside", "nowhere"]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """The estimated range of a waiting time."""

    soonest_s: float
    latest_s: float


class RoomPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one visitor."""

    room: str
    user: str
    state: State
    """`drawing`: before the start, when places are drawn and no visitor has a position; `entering`: out of the line,
    inside in a moment; `nowhere`: neither in line nor inside, or no longer."""
    position: int | None = None
    """Position in line, starting at 1."""
    waiting: int | None = None
    """The length of the line, if it was read."""
    opens_in_ms: int = 0
    """Milliseconds until the start; 0 after it."""
    left_ms: int | None = None
    """Remaining time of the session unless it is renewed."""
    estimate: Interval | None = None
    """Null while it is unknown, and while the line is paused."""
    is_paused: bool = False
    """Whether admission is paused: the room is closed, or its capacity is 0."""
    shown: str | None = msgspec.field(default=None, name="pass")
    """The new pass, which replaces the previous one; null if that is still valid, or there is none."""

    def __repr__(self) -> str:
        return f"RoomPlace({self.room!r}, {self.user!r}, {self.state!r}, {self.position!r})"


class DrawView(msgspec.Struct, frozen=True, kw_only=True):
    """The published values that verify the draw of a room; the guide shows how."""

    room: str
    opens_at: datetime | None
    """The start; null if it is not known yet."""
    commitment: str
    """The SHA-256 of the seed, public since the room was created."""
    seed: str | None
    """Null until the start, so that it cannot be used to choose a place."""
    number: int | None
    """The arrival number of the visitor with the pass, after the start."""
    place: int | None
    """The place computed from seed and number; visitors that came after the start have their number as the place."""


class BrowserRequest(Protocol):
    """The headers and cookies of a request, of this framework or another one."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request."""
        ...

    @property
    def cookies(self) -> Mapping[str, str]:
        """The cookies of the request."""
        ...


class AdmissionRates:
    """The admission rate of each line, measured at most once a second."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Pace | None]] = {}

    async def of(self, room: WaitingRoom) -> Pace | None:
        """The rate of one line; None if it is unknown."""
        until, pace = self._known.get(room.name, (0.0, None))
        if time.monotonic() >= until:
            # Concurrent callers get the previous value: only one of them measures.
            self._known[room.name] = time.monotonic() + _FRESH_S, pace
            pace = await room.pace()
            self._known[room.name] = time.monotonic() + _FRESH_S, pace
        return pace


class PlaceRoutes:
    """Routes for visitors, authorized by their pass."""

    def __init__(
        self, waiting_rooms: WaitingRooms, paces: AdmissionRates, watch: Callable[[WaitingRoom, Pass], HttpResponse]
    ) -> None:
        """`watch` builds the event response of one place."""
        self._waiting_rooms, self._paces, self._watch = waiting_rooms, paces, watch

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of places and draws."""
        place, refused = "/v1/rooms/{room}/place", (ProblemType.PASS_REFUSED,)
        inside = (ProblemType.PASS_REFUSED, ProblemType.NOT_ACTIVE)
        return [
            route("GET", place, self.show_place, TAG, problems=refused, is_open=True, is_high_volume=True, sent=SENT),
            route(
                "GET",
                f"{place}/events",
                self.watch_place,
                TAG,
                media_types=(EVENTS,),
                also={204: FurtherAnswer("The client has received the last event; there is nothing more to come.")},
                problems=(ProblemType.PASS_REFUSED, ProblemType.TOO_MANY),
                is_open=True,
                is_high_volume=True,
                sent=SENT,
                event=RoomPlace,
            ),
            route("DELETE", place, self.leave_place, TAG, problems=refused, is_open=True, sent=SENT),
            route(
                "POST",
                "/v1/rooms/{room}/renewals",
                self.renew_session,
                TAG,
                problems=inside,
                is_open=True,
                is_high_volume=True,
                sent=SENT,
            ),
            route("GET", "/v1/rooms/{room}/draw", self.show_draw, TAG, problems=refused, is_open=True, sent=SENT),
        ]

    async def show_place(self, room: RoomName, request: HttpRequest) -> RoomPlace:
        """Show the place of a pass's owner, with a new pass if it is due. Each request is a sign of life."""
        waiting_room = await self._waiting_rooms.room(room)
        answer = await waiting_room.status(shown_pass(request, room))
        return place_of(waiting_room, answer, await self._paces.of(waiting_room))

    async def watch_place(self, room: RoomName, request: HttpRequest) -> HttpResponse:
        """Watch a place by server-sent events.

        Each `place` event has what `GET /v1/rooms/{room}/place` returns. It is sent when that changes, at most twice a
        second. `pass` is set when it replaces the previous pass, so a watching client always has a valid one. Watching
        is a sign of life. The event with `inside` or `nowhere` is the last one and closes the stream; a browser that
        reconnects after it receives 204, which stops its attempts. While the server of the line is unavailable, the
        stream stays open and continues afterwards. A slow client receives only the latest state. Comments are sent when
        nothing else is.
        """
        waiting_room = await self._waiting_rooms.room(room)
        token = shown_pass(request, room)
        shown = waiting_room.read(token)
        # A browser reconnects after every end of a stream; 204 stops it. Not if the visitor has joined again since.
        if request.headers.get("last-event-id") == ENDED:
            answer = await waiting_room.status(token)
            if isinstance(answer.standing, (Inside, NotPresent)):
                return Response(b"", status_code=204)
        return self._watch(waiting_room, shown)

    async def leave_place(self, room: RoomName, request: HttpRequest) -> RoomPlace:
        """Give up the place in line or inside; the next visitor moves up. Without a place, nothing happens."""
        waiting_room, token = await self._waiting_rooms.room(room), shown_pass(request, room)
        await waiting_room.leave(token)
        return place_of(waiting_room, Standpoint(waiting_room.read(token).user, NotPresent(), None), None)

    async def renew_session(self, room: RoomName, request: HttpRequest) -> RoomPlace:
        """Report activity inside: if less than half of the session is left, it is renewed."""
        waiting_room = await self._waiting_rooms.room(room)
        return place_of(waiting_room, await waiting_room.renew(shown_pass(request, room)), None)

    async def show_draw(self, room: RoomName, request: HttpRequest) -> DrawView:
        """Show the values that verify the draw; with a pass for the line, also the visitor's number and place."""
        token, shown = find_pass(request, room), None
        if token is not None:
            with suppress(PassExpired):  # a browser keeps its cookie longer, and these values are public
                shown = (await self._waiting_rooms.room(room)).read(token)
        status = await self._waiting_rooms.status(room)
        # Before the start, place and number would let a visitor compare lots and join again for a better one.
        place = None if shown is None or status.seed is None else shown.place
        return DrawView(
            room=room,
            opens_at=status.opens_at,
            commitment=status.commitment,
            seed=status.seed,
            number=None if place is None else number_of(place),
            place=place,
        )


def find_pass(request: BrowserRequest, room: str) -> str | None:
    """The pass of a request; None if it has none."""
    return request.headers.get(HEADER) or request.cookies.get(COOKIE.format(room=room)) or None


def shown_pass(request: HttpRequest, room: str) -> str:
    """The pass of a request; raises `PassRefused` if it has none."""
    token = find_pass(request, room)
    if token is None:
        raise PassRefused("no pass was shown")
    return token


def place_of(room: WaitingRoom, found: Standpoint, pace: Pace | None) -> RoomPlace:
    """The response for one place."""
    standing = found.standing
    ahead = standing.ahead if isinstance(standing, Waiting) else None
    return RoomPlace(
        room=room.name,
        user=found.user,
        state=state_of(standing),
        position=None if ahead is None else ahead + 1,
        waiting=found.waiting,
        opens_in_ms=standing.opens_in_ms if isinstance(standing, Waiting) else 0,
        left_ms=standing.left_ms if isinstance(standing, Inside) else None,
        estimate=None if ahead is None or pace is None or room.room.is_paused else interval_of(pace, ahead),
        is_paused=room.room.is_paused,
        shown=found.token,
    )


def interval_of(pace: Pace, ahead: int) -> Interval:
    """The estimated wait in seconds, rounded to tenths."""
    estimate = pace.wait(ahead)
    return Interval(
        soonest_s=round(estimate.soonest.total_seconds(), 1), latest_s=round(estimate.latest.total_seconds(), 1)
    )


def state_of(standing: Standing) -> State:
    """The name of a standing in the API."""
    match standing:
        case Waiting(ahead=None):
            return "drawing"
        case Waiting():
            return "waiting"
        case Entering():
            return "entering"
        case Inside():
            return "inside"
        case NotPresent():
            return "nowhere"
