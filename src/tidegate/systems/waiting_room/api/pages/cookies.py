"""Cookies of the waiting page: the pass, and the place at which its owner began to wait."""

import re
from datetime import timedelta

from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.remote import speaks_tls
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.api.places import COOKIE

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
