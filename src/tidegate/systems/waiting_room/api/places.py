"""`/v1/rooms/{room}/place`: where a visitor stands. His pass is his right; no API key is needed.

A pass is a secret: it comes in a header or a cookie, never in an address, and is told to its owner alone.
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
from tidegate.http.routes import Also, route
from tidegate.systems.waiting_room import (
    Entering,
    Inside,
    Nowhere,
    Pace,
    PassRefused,
    Standing,
    WaitingRoom,
    number_of,
)
from tidegate.systems.waiting_room import (
    InLine as Waiting,
)
from tidegate.systems.waiting_room import (
    VisitorPass as Pass,
)
from tidegate.systems.waiting_room import VisitorStatus as Standpoint
from tidegate.systems.waiting_room import (
    WaitingRooms as Reception,
)
from tidegate.systems.waiting_room.model import LONGEST_ROOM, ROOM_NAME
from tidegate.systems.waiting_room.passes import PassExpired

TAG = "places"
HEADER = "Tidegate-Pass"
COOKIE = "tidegate_pass_{room}"
SENT = {HEADER: "The pass that was last given; a cookie named `tidegate_pass_` and the room's name does as well."}
_FRESH_S = 1.0

RoomName = Annotated[str, Meta(min_length=1, max_length=LONGEST_ROOM, pattern=f"^{ROOM_NAME}$")]
State = Literal["drawing", "waiting", "entering", "inside", "nowhere"]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """How long somebody probably waits."""

    soonest_s: float
    latest_s: float


class RoomPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody stands."""

    room: str
    user: str
    state: State
    """`drawing`: before the start, when places are drawn and nobody has a position; `entering`: out of the line, and in
    a moment inside; `nowhere`: neither in line nor inside, or no longer."""
    position: int | None = None
    """1 is next."""
    waiting: int | None = None
    """The length of the line, where it was looked at."""
    opens_in_ms: int = 0
    """Until the start; 0 when it has come."""
    left_ms: int | None = None
    """How long the session lasts if nothing prolongs it."""
    estimate: Interval | None = None
    """Null while it is not known, and while the line is paused."""
    is_paused: bool = False
    """Whether no one is admitted at the moment: the room is closed, or its capacity is 0."""
    shown: str | None = msgspec.field(default=None, name="pass")
    """To be shown from now on, in place of the one before; null where that is still good, or there is none."""

    def __repr__(self) -> str:
        return f"RoomPlace({self.room!r}, {self.user!r}, {self.state!r}, {self.position!r})"


class DrawView(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody needs to check the draw of a room; the guide shows how."""

    room: str
    opens_at: datetime | None
    """The start; null where none is known yet."""
    commitment: str
    """The SHA-256 of the seed, public since the room was made."""
    seed: str | None
    """Null until the start has come: nobody may choose a place by it."""
    number: int | None
    """The arrival number of whoever shows a pass for the line, once the start has come."""
    place: int | None
    """The place that follows from seed and number; of those who came after the start it is the number."""


class Browser(Protocol):
    """A request, of this framework or of another one."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        ...

    @property
    def cookies(self) -> Mapping[str, str]:
        """Its cookies."""
        ...


class Paces:
    """How fast lines move, measured at most once a second for each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Pace | None]] = {}

    async def of(self, room: WaitingRoom) -> Pace | None:
        """How fast this one moves; None while nobody knows."""
        until, pace = self._known.get(room.name, (0.0, None))
        if time.monotonic() >= until:
            # Whoever asks meanwhile is told what was known before: one measures, however many ask.
            self._known[room.name] = time.monotonic() + _FRESH_S, pace
            pace = await room.pace()
            self._known[room.name] = time.monotonic() + _FRESH_S, pace
        return pace


class PlaceRoutes:
    """Routes for visitors, who show their pass."""

    def __init__(self, reception: Reception, paces: Paces, watch: Callable[[WaitingRoom, Pass], HttpResponse]) -> None:
        """`watch` answers with the events of one place."""
        self._reception, self._paces, self._watch = reception, paces, watch

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What a visitor can do."""
        place, refused = "/v1/rooms/{room}/place", (ProblemType.PASS_REFUSED,)
        inside = (ProblemType.PASS_REFUSED, ProblemType.NOT_ACTIVE)
        return [
            route("GET", place, self.show_place, TAG, problems=refused, is_open=True, is_chatter=True, sent=SENT),
            route(
                "GET",
                f"{place}/events",
                self.watch_place,
                TAG,
                media_types=(EVENTS,),
                also={204: Also("The client has seen the last event already: there is nothing more to come.")},
                problems=(ProblemType.PASS_REFUSED, ProblemType.TOO_MANY),
                is_open=True,
                is_chatter=True,
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
                is_chatter=True,
                sent=SENT,
            ),
            route("GET", "/v1/rooms/{room}/draw", self.show_draw, TAG, problems=refused, is_open=True, sent=SENT),
        ]

    async def show_place(self, room: RoomName, request: HttpRequest) -> RoomPlace:
        """Tell where the owner of a pass stands, with a new pass. To ask is a sign of life."""
        waiting_room = await self._reception.room(room)
        answer = await waiting_room.look(shown_pass(request, room))
        return place_of(waiting_room, answer, await self._paces.of(waiting_room))

    async def watch_place(self, room: RoomName, request: HttpRequest) -> HttpResponse:
        """Watch a place by server-sent events.

        Each `place` event has what `GET /v1/rooms/{room}/place` answers, and comes when that changes: at once, and up
        to twice a second. `pass` is there when it is to replace the one before: so whoever watches always holds a good
        one. To watch is a sign of life. The event with `inside` or `nowhere` is the last, and closes the stream; a
        browser that comes back from there is answered 204, at which it stops asking. While the server of the line is
        away the stream stays, and goes on when it is back. Where a client is slow, it gets the latest and not what came
        before. Comments come when nothing else does.
        """
        waiting_room = await self._reception.room(room)
        token = shown_pass(request, room)
        shown = waiting_room.read(token)
        if request.headers.get("last-event-id") == ENDED:
            answer = await waiting_room.look(token)
            if isinstance(answer.standing, (Inside, Nowhere)):
                return Response(b"", status_code=204)
        return self._watch(waiting_room, shown)

    async def leave_place(self, room: RoomName, request: HttpRequest) -> RoomPlace:
        """Give up the place in line, or inside; the next one moves up. Who is nowhere stays there."""
        waiting_room, token = await self._reception.room(room), shown_pass(request, room)
        await waiting_room.leave(token)
        return place_of(waiting_room, Standpoint(waiting_room.read(token).user, Nowhere(), None), None)

    async def renew_session(self, room: RoomName, request: HttpRequest) -> RoomPlace:
        """Say that something was done inside: where less than half of the session is left, it is prolonged."""
        waiting_room = await self._reception.room(room)
        return place_of(waiting_room, await waiting_room.renew(shown_pass(request, room)), None)

    async def show_draw(self, room: RoomName, request: HttpRequest) -> DrawView:
        """Tell what is needed to check the draw; with a pass for the line also one's own number and place."""
        token, shown = find_pass(request, room), None
        if token is not None:
            with suppress(PassExpired):  # a browser keeps its cookie for longer, and this is for everybody
                shown = (await self._reception.room(room)).read(token)
        status = await self._reception.status(room)
        place = None if shown is None or status.seed is None else shown.place
        return DrawView(
            room=room,
            opens_at=status.opens_at,
            commitment=status.commitment,
            seed=status.seed,
            number=None if place is None else number_of(place),
            place=place,
        )


def find_pass(request: Browser, room: str) -> str | None:
    """The pass that a request shows; None where it shows none."""
    return request.headers.get(HEADER) or request.cookies.get(COOKIE.format(room=room)) or None


def shown_pass(request: HttpRequest, room: str) -> str:
    """The same; raise `PassRefused` where it shows none."""
    token = find_pass(request, room)
    if token is None:
        raise PassRefused("no pass was shown")
    return token


def place_of(room: WaitingRoom, found: Standpoint, pace: Pace | None) -> RoomPlace:
    """As it is told."""
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
    """In seconds, to the tenth."""
    estimate = pace.wait(ahead)
    return Interval(
        soonest_s=round(estimate.soonest.total_seconds(), 1), latest_s=round(estimate.latest.total_seconds(), 1)
    )


def state_of(standing: Standing) -> State:
    """In one word."""
    match standing:
        case Waiting(ahead=None):
            return "drawing"
        case Waiting():
            return "waiting"
        case Entering():
            return "entering"
        case Inside():
            return "inside"
        case Nowhere():
            return "nowhere"
