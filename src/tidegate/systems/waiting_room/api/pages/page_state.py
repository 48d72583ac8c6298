"""State of the waiting page, derived from the room, the pass and the place in line; and the cookies that hold both."""

import re
from datetime import timedelta
from enum import StrEnum

import msgspec

from tidegate.http.asgi import HttpRequest, HttpResponse, speaks_tls
from tidegate.systems.waiting_room import Entering, Estimate, Inside, NotPresent, Room, RoomPlan, RoomState, Standing
from tidegate.systems.waiting_room import InLine as Waiting
from tidegate.systems.waiting_room.api.places import COOKIE
from tidegate.systems.waiting_room.passes import VisitorPass as Pass

_NUMBER = re.compile(r"[1-9]\d{0,15}")
_FORGOTTEN_AFTER = timedelta(hours=1)
"""How long an expired pass is kept, so that the page can tell its owner that the place is lost."""


def pass_cookie(room: str) -> str:
    """Name of the cookie with the pass; the shop reads it too."""
    return COOKIE.format(room=room)


def visitor_cookie(room: str) -> str:
    """Name of the cookie with the id of an anonymous visitor."""
    return f"tidegate_visitor_{room}"


def start_cookie(room: str) -> str:
    """Name of the cookie with the place from which progress is measured."""
    return f"tidegate_start_{room}"


def kept_s(plan: RoomPlan) -> int:
    """How long a browser keeps the pass and the start."""
    return int((max(plan.abandon_after, plan.longest_session) + _FORGOTTEN_AFTER).total_seconds())


def start_of(request: HttpRequest, room: str) -> int | None:
    """The place at which this browser began to wait, if it has the cookie."""
    text = request.cookies.get(start_cookie(room), "")
    return int(text) if _NUMBER.fullmatch(text) else None


def keep_pass(response: HttpResponse, request: HttpRequest, room: str, token: str, plan: RoomPlan) -> None:
    """Set the pass cookie. The page's script replaces it, so scripts can read it; other sites cannot."""
    response.set_cookie(
        pass_cookie(room), token, max_age=kept_s(plan), path="/", samesite="lax", secure=_is_secure(request)
    )


def keep_start(response: HttpResponse, request: HttpRequest, room: str, position: int, plan: RoomPlan) -> None:
    """Set the start cookie, for the page only: without a path, it applies to the folder of the page."""
    response.set_cookie(
        start_cookie(room), str(position), max_age=kept_s(plan), path="", samesite="lax", secure=_is_secure(request)
    )


def keep_visitor(response: HttpResponse, request: HttpRequest, room: str, visitor: str) -> None:
    """Set the visitor cookie; scripts cannot read it."""
    response.set_cookie(
        visitor_cookie(room),
        visitor,
        max_age=86_400,
        path="/",
        samesite="lax",
        secure=_is_secure(request),
        httponly=True,
    )


def forget(response: HttpResponse, request: HttpRequest, room: str) -> None:
    """Delete the pass and the start; the visitor stays, so that the same browser returns under the same id."""
    secure = _is_secure(request)
    response.set_cookie(pass_cookie(room), "", max_age=0, path="/", samesite="lax", secure=secure)
    forget_start(response, request, room)


def forget_start(response: HttpResponse, request: HttpRequest, room: str) -> None:
    """Delete the start, because a new place has its own progress."""
    response.set_cookie(start_cookie(room), "", max_age=0, path="", samesite="lax", secure=_is_secure(request))


def _is_secure(request: HttpRequest) -> bool:
    return speaks_tls(request.url.scheme, request.headers)


_SOON_S, _LATER_S, _MOST_S = 5, 15, 30
_NEAR = 100
"""Visitors with a position up to this are refreshed more often."""


class PageState(StrEnum):
    """All states of the page."""

    JOIN = "join"  # has no place, and may join
    DRAWING = "drawing"  # joined before the start
    WAITING = "waiting"  # has a place
    ENTERING = "entering"  # is being admitted
    INSIDE = "inside"  # admitted; redirected to the entrance if there is one
    OVER = "over"  # was inside
    LAPSED = "lapsed"  # lost the place after being away too long
    LEFT = "left"  # gave the place up
    CLOSED = "closed"  # joining is not possible
    UNINVITED = "uninvited"  # only the shop adds visitors
    UNAVAILABLE = "unavailable"  # the server of the line is unavailable
    ABSENT = "absent"  # the room does not exist
    THROTTLED = "throttled"  # too many visitors joined from this address


LIVE = (PageState.DRAWING, PageState.WAITING, PageState.ENTERING)
"""States that change while the page is open."""


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that one request found."""

    room: Room
    shown: Pass | None
    """The pass of the request, also an expired one; None if it was not issued by this room."""
    is_good: bool
    """Whether the pass is valid."""
    standing: Standing
    waiting: int
    """The length of the line."""
    opens_in_ms: int
    estimate: Estimate | None = None
    token: str | None = None
    """The new pass."""
    has_left: bool = False
    """Whether the visitor has just given up the place."""

    @property
    def can_join(self) -> bool:
        """Whether a place can be taken: by any visitor, or by a visitor that the shop added."""
        return self.room.state is RoomState.OPEN and (self.room.plan.anonymous or self.is_good)

    @property
    def joins_as_visitor(self) -> bool:
        """Whether joining creates an anonymous visitor."""
        return self.can_join and not self.is_good

    @property
    def state(self) -> PageState:
        """The state to show."""
        match self.standing:
            case Waiting(ahead=None):
                return PageState.DRAWING
            case Waiting():
                return PageState.WAITING
            case Entering():
                return PageState.ENTERING
            case Inside(left_ms=left_ms) if left_ms > 0:
                return PageState.INSIDE
            case Inside():
                return PageState.OVER
            case NotPresent():
                return self._outside()

    def _outside(self) -> PageState:
        if self.has_left:
            return PageState.LEFT
        # A pass of a session that is over says more than an expired pass, so this comes before `LAPSED`.
        if self.shown is not None and self.shown.kind == "inside":
            return PageState.OVER
        if self.shown is not None and not self.is_good:
            return PageState.LAPSED
        if self.room.state is RoomState.CLOSED:
            return PageState.CLOSED
        return PageState.JOIN if self.can_join else PageState.UNINVITED

    @property
    def position(self) -> int | None:
        """Position in line, starting at 1."""
        ahead = self.standing.ahead if isinstance(self.standing, Waiting) else None
        return None if ahead is None else ahead + 1


def title_of(room: Room) -> str:
    """The name of the room that visitors see."""
    return room.plan.title or room.name


def again_s(state: PageState, view: PageView | None) -> int | None:
    """Seconds until the page reloads itself, if the browser receives no events; None for no reload.

    Short enough to be a sign of life, and to enter without delay.
    """
    match state:
        case PageState.ENTERING:
            return 2
        case PageState.UNAVAILABLE:
            return _SOON_S
        case PageState.CLOSED:
            return _MOST_S
        case PageState.DRAWING | PageState.WAITING if view is not None:
            wanted = _MOST_S
            if state is PageState.DRAWING:
                wanted = max(2, min(_MOST_S, view.opens_in_ms // 1000 + 1))
            elif view.position is not None:
                wanted = _SOON_S if view.position <= _NEAR else _LATER_S
            # Each reload is a sign of life. Three of them within `abandon_after` allow two to be lost.
            return min(wanted, max(1, int(view.room.plan.abandon_after / timedelta(seconds=3))))
        case _:
            return None


def progress(first: int, position: int) -> float:
    """Progress in per cent from the place `first` to admission."""
    return round(100 * (1 - position / (first + 1)), 1)
