"""What a browser keeps for the page: the pass, and where its owner began to wait."""

import re
from datetime import timedelta

from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.remote import speaks_tls
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.api.places import COOKIE

_NUMBER = re.compile(r"[1-9]\d{0,15}")
_FORGOTTEN_AFTER = timedelta(hours=1)
"""So long after its time a pass is still good for telling its owner what became of his place."""


def pass_cookie(room: str) -> str:
    """The name of the cookie with the pass; the shop finds it there too."""
    return COOKIE.format(room=room)


def visitor_cookie(room: str) -> str:
    """The name of the cookie that says under which id this browser joins, where the visitor is anonymous."""
    return f"tidegate_visitor_{room}"


def start_cookie(room: str) -> str:
    """The name of the cookie with the place from which the progress is counted."""
    return f"tidegate_start_{room}"


def kept_s(plan: RoomPlan) -> int:
    """How long a browser keeps either."""
    return int((max(plan.abandon_after, plan.longest_session) + _FORGOTTEN_AFTER).total_seconds())


def start_of(request: HttpRequest, room: str) -> int | None:
    """Where this browser began to wait, as far as it remembers."""
    text = request.cookies.get(start_cookie(room), "")
    return int(text) if _NUMBER.fullmatch(text) else None


def keep_pass(response: HttpResponse, request: HttpRequest, room: str, token: str, plan: RoomPlan) -> None:
    """The script of the page replaces it when a new one comes, so scripts may see it; other sites never do."""
    response.set_cookie(
        pass_cookie(room), token, max_age=kept_s(plan), path="/", samesite="lax", secure=_is_secure(request)
    )


def keep_start(response: HttpResponse, request: HttpRequest, room: str, position: int, plan: RoomPlan) -> None:
    """For the page alone: without a path, it is that of the folder in which the page lies."""
    response.set_cookie(
        start_cookie(room), str(position), max_age=kept_s(plan), path="", samesite="lax", secure=_is_secure(request)
    )


def keep_visitor(response: HttpResponse, request: HttpRequest, room: str, visitor: str) -> None:
    """For as long as it is good; scripts need not see it."""
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
    """The pass and the start; the visitor stays, so that the same browser comes back under the same id."""
    secure = _is_secure(request)
    response.set_cookie(pass_cookie(room), "", max_age=0, path="/", samesite="lax", secure=secure)
    forget_start(response, request, room)


def forget_start(response: HttpResponse, request: HttpRequest, room: str) -> None:
    """A new place begins its own way."""
    response.set_cookie(start_cookie(room), "", max_age=0, path="", samesite="lax", secure=_is_secure(request))


def _is_secure(request: HttpRequest) -> bool:
    return speaks_tls(request.url.scheme, request.headers)
