"""`/rooms/{room}`: the waiting page, and its two actions without a script.

Links are relative, so that the page works wherever it is mounted. No redirect destination comes from the request: the
entrance is part of the room's settings.
"""

import asyncio
import hashlib
import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from tidegate.core.arguments import require_whole
from tidegate.core.errors import (
    InvalidArgument,
    NotFound,
    Unavailable,
    ValkeyUnavailable,
)
from tidegate.http.asgi import ClientAddresses, HttpRequest, HttpResponse, is_for_head
from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route
from tidegate.http.settings import HttpSettings
from tidegate.primitives.throttle import Throttle
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import (
    InLine as Waiting,
)
from tidegate.systems.waiting_room import (
    LineView as Crowd,
)
from tidegate.systems.waiting_room import (
    NotActive,
    NotPresent,
    PassRefused,
    RoomClosed,
    Standing,
    WaitingRoom,
    WaitingRooms,
)
from tidegate.systems.waiting_room.api.pages import page_state
from tidegate.systems.waiting_room.api.pages.page_state import PageState, PageView, title_of
from tidegate.systems.waiting_room.api.pages.rendering import FOLDER, Assets, PageRenderer
from tidegate.systems.waiting_room.api.pages.texts import Language, language_of
from tidegate.systems.waiting_room.api.places import AdmissionRates, find_pass
from tidegate.systems.waiting_room.metrics import ROOM_THROTTLED
from tidegate.systems.waiting_room.model import MOST_PUZZLE_BITS, require_room_name
from tidegate.systems.waiting_room.passes import PassExpired
from tidegate.systems.waiting_room.passes import VisitorPass as Pass

_CHALLENGE_DIGITS = 32
LONGEST_SOLUTION = 16


def challenge_of(visitor: str) -> str:
    """The challenge for a visitor, from the value of the visitor's cookie. Short, so that one hash block suffices."""
    return hashlib.sha256(b"tidegate/puzzle/" + visitor.encode()).hexdigest()[:_CHALLENGE_DIGITS]


def is_solved(challenge: str, solution: str, bits: int) -> bool:
    """Whether a solution is correct."""
    if bits == 0:
        return True
    # Bounded before hashing, since the text comes from the client.
    if not solution.isascii() or not solution.isdigit() or len(solution) > LONGEST_SOLUTION:
        return False
    digest = hashlib.sha256(f"{challenge}:{solution}".encode()).digest()
    return int.from_bytes(digest[:4]) >> (32 - bits) == 0


def solve(challenge: str, bits: int) -> str:
    """Find a solution, for programs that join in the place of a browser."""
    require_whole("bits", bits, least=0, most=MOST_PUZZLE_BITS)
    return next(str(number) for number in count() if is_solved(challenge, str(number), bits))


TAG = "waiting page"
_HTML = "text/html; charset=utf-8"
_WITHIN_S = 5.0
"""Time limit for reading the line; then the page says that the line is unavailable."""
_UNAVAILABLE_ERRORS = (Unavailable, TimeoutError)


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query parameters of the page. Unknown parameters are ignored, because links may have additional ones."""

    lang: str | None = None
    """`en` or `ko`; by default the browser's language."""
    shown: str | None = msgspec.field(default=None, name="pass")
    """A pass that the shop received for this visitor."""
    left: str | None = None
    """Set after the visitor has left."""


class PageForm(RequestInput, frozen=True, kw_only=True):
    """The form fields of the page."""

    do: Literal["join", "leave"]
    proof: Annotated[str, msgspec.Meta(max_length=LONGEST_SOLUTION)] = ""
    """The solution of the puzzle, if the room has one."""


class PageRoutes:
    """Routes of the waiting page."""

    def __init__(
        self, waiting_rooms: WaitingRooms, paces: AdmissionRates, settings: HttpSettings | None = None
    ) -> None:
        self._waiting_rooms, self._paces, self._assets = waiting_rooms, paces, Assets()
        self._renderer = PageRenderer(self._assets)
        settings = settings or HttpSettings()
        self._addresses, self._throttle = ClientAddresses(settings), _throttle(waiting_rooms.valkey, settings)

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of the page and its files."""
        page = "/rooms/{room}"
        return [
            route(
                "GET", page, self.show_page, TAG, media_types=(_HTML,), is_open=True, is_page=True, is_high_volume=True
            ),
            route("POST", page, self.act_on_page, TAG, media_types=(_HTML,), is_open=True, is_page=True),
            route(
                "GET",
                f"/rooms/{FOLDER}/{{file}}",
                self.show_asset,
                TAG,
                is_open=True,
                is_page=True,
                is_high_volume=True,
            ),
        ]

    async def show_asset(self, file: str) -> HttpResponse:
        """Serve a file of the page."""
        return self._assets.answer(file)

    async def show_page(self, room: str, query: PageQuery, request: HttpRequest) -> HttpResponse:
        """Show a visitor their place; each request is a sign of life."""
        language, found = language_of(query.lang, request.headers.get("accept-language", "")), None
        try:
            async with asyncio.timeout(_WITHIN_S):
                found = await self._waiting_rooms.room(require_room_name(room))
                # Before the line is read: the pass must be kept also if that fails, and must leave the URL.
                if query.shown is not None:
                    return _take_pass(found, query.shown, request)
                view = await self._read_view(found, find_pass(request, room), may_join=not is_for_head(request.scope))
        except (NotFound, InvalidArgument):
            return self._renderer.without_view(PageState.ABSENT, room, language)
        except _UNAVAILABLE_ERRORS:
            return self._renderer.without_view(PageState.UNAVAILABLE, room, language, _title(found))
        return self._shown(found, msgspec.structs.replace(view, has_left=query.left is not None), language, request)

    async def act_on_page(self, room: str, query: PageQuery, body: PageForm, request: HttpRequest) -> HttpResponse:
        """Join or leave the line, then redirect to the page."""
        token, found = find_pass(request, room), None
        language = language_of(query.lang, request.headers.get("accept-language", ""))
        try:
            async with asyncio.timeout(_WITHIN_S):
                found = await self._waiting_rooms.room(require_room_name(room))
                if body.do == "join":
                    return await self._join(found, token, body.proof, request)
                return await self._leave(found, token, request)
        except (NotFound, InvalidArgument):
            # The GET that follows shows the reason. A page that is the answer of a POST would be sent again on reload.
            return _see(room, request)
        except _Throttled as error:
            return self._renderer.throttled(room, language, _title(found), error.wait_s)
        except _UNAVAILABLE_ERRORS:
            return self._renderer.without_view(PageState.UNAVAILABLE, room, language, _title(found))

    def _shown(self, room: WaitingRoom, view: PageView, language: Language, request: HttpRequest) -> HttpResponse:
        """Render the page of a view, or redirect a visitor inside to the entrance, and set the cookies."""
        plan = view.room.plan
        if view.state is PageState.INSIDE and plan.entrance is not None:
            response: HttpResponse = _redirect(plan.entrance)
        else:
            start = page_state.start_of(request, room.name)
            # The progress starts at the largest place that was shown. A place that was restored can be further back.
            if view.position is not None and (start is None or start < view.position):
                start = view.position
            visitor = (_visitor(room, request) or room.new_visitor()) if view.joins_as_visitor else ""
            challenge = challenge_of(visitor) if visitor and plan.puzzle_bits else ""
            response = self._renderer.page(view, language, start, challenge)
            if visitor:
                page_state.keep_visitor(response, request, room.name, visitor)
            if start is not None and view.position is not None:
                page_state.keep_start(response, request, room.name, start, plan)
        if view.token is not None:
            page_state.keep_pass(response, request, room.name, view.token, plan)
        return response

    async def _join(self, room: WaitingRoom, token: str | None, proof: str, request: HttpRequest) -> HttpResponse:
        """Let the visitor join the line, and set their pass as a cookie.

        Anonymous visitors must have solved the puzzle of the room. In any case, the answer leads back to the page.
        """
        response = _see(room.name, request)
        try:
            user = None if token is None else room.read(token).user
        except PassRefused:
            user = None
        # Only anonymous visitors are limited by puzzle and throttle. A pass was issued by the shop or after both.
        if user is None:
            plan, visitor = (await room.present()).plan, _visitor(room, request)
            if not plan.anonymous or not _has_solved(visitor, proof, plan.puzzle_bits):
                return response
            visitor = visitor or room.new_visitor()
            user = room.read_visitor(visitor)
            # Counted after the puzzle: unsolved attempts do not use up the allowance of an address.
            await self._arrive(user, request)
            page_state.keep_visitor(response, request, room.name, visitor)
        try:
            answer = await room.join(user, token)
        except RoomClosed:
            return response
        # The new place has its own progress.
        page_state.forget_start(response, request, room.name)
        if answer.token is not None:
            page_state.keep_pass(response, request, room.name, answer.token, room.room.plan)
        return response

    async def _arrive(self, user: str, request: HttpRequest) -> None:
        """Count an anonymous visitor; raises `_Throttled` if too many joined from the same address.

        The count is kept in Valkey, like the line: while Valkey is unavailable, joining fails.
        """
        if self._throttle is None:
            return
        wait = await self._throttle.take(self._addresses.of_scope(request.scope), user)
        if wait is not None:
            ROOM_THROTTLED.inc()
            raise _Throttled(math.ceil(wait.total_seconds()))

    async def _leave(self, room: WaitingRoom, token: str | None, request: HttpRequest) -> HttpResponse:
        try:
            if token is not None:
                await room.leave(token)
        except PassRefused:
            pass  # without a valid pass the visitor has no place to leave
        response = _see(room.name, request, left="1")
        page_state.forget(response, request, room.name)
        return response

    async def _line_view(self, room: WaitingRoom, token: str | None, shown: Pass | None) -> Crowd:
        """Read the line and the visitor's standing. Visitors inside are found in SQL while the line is unavailable."""
        try:
            return await room.standings([] if shown is None else [shown.user])
        except ValkeyUnavailable:
            if token is None or shown is None or shown.kind != "inside":
                raise
            with suppress(NotActive):
                return Crowd(0, 0, [(await room.check(token)).standing])
            raise

    async def _read_view(self, room: WaitingRoom, token: str | None, *, may_join: bool) -> PageView:
        """Read what the page shows: the place of the visitor, the line and the estimated wait."""
        shown, is_good = _read(room, token)
        view = await self._line_view(room, token, shown if is_good else None)
        standing = view.standings[0] if view.standings else NotPresent()
        # A valid pass and no place: the server lost the visitor. A HEAD request must not change
        # anything, so it does not join.
        if may_join and isinstance(standing, NotPresent) and shown is not None and is_good and shown.kind == "waiting":
            standing = await _regained(room, shown.user, token)
        answer = None if shown is None else room.answer(shown.user, standing)
        estimate = None
        if isinstance(standing, Waiting) and standing.ahead is not None:
            pace = await self._paces.of(room)
            estimate = None if pace is None else pace.wait(standing.ahead)
        return PageView(
            room=room.room,
            shown=shown,
            is_good=is_good,
            standing=standing,
            waiting=view.waiting,
            opens_in_ms=view.opens_in_ms,
            estimate=estimate,
            token=None if answer is None else answer.token,
        )


class _Throttled(Exception):
    def __init__(self, wait_s: int) -> None:
        super().__init__(f"for {wait_s} s")
        self.wait_s = wait_s


def _throttle(valkey: Valkey, settings: HttpSettings) -> Throttle | None:
    if settings.visitors_per_address == 0:
        return None
    return Throttle(valkey, "visitors", burst=settings.visitors_per_address, interval=settings.visitor_again_after)


def _visitor(room: WaitingRoom, request: HttpRequest) -> str | None:
    """The visitor cookie of a browser; None if it is missing or invalid."""
    text = request.cookies.get(page_state.visitor_cookie(room.name))
    try:
        if text is not None:
            room.read_visitor(text)
    except PassRefused:
        return None
    return text


def _has_solved(visitor: str | None, proof: str, bits: int) -> bool:
    return bits == 0 or (visitor is not None and is_solved(challenge_of(visitor), proof, bits))


async def _regained(room: WaitingRoom, user: str, token: str | None) -> Standing:
    """Restore the place of a visitor with a valid pass that the server has lost."""
    try:
        return (await room.join(user, token)).standing
    except RoomClosed:
        return NotPresent()


def _take_pass(room: WaitingRoom, token: str, request: HttpRequest) -> HttpResponse:
    """Move a pass that the shop sent from the URL to the cookie, so that it is not exposed.

    This reads no server, so the pass is kept while the server of the line is unavailable too.
    """
    response = _see(room.name, request)
    with suppress(PassRefused):
        room.read(token)
        page_state.keep_pass(response, request, room.name, token, room.room.plan)
    return response


def _title(room: WaitingRoom | None) -> str:
    return "" if room is None else title_of(room.room)


def _read(room: WaitingRoom, token: str | None) -> tuple[Pass | None, bool]:
    """The contents of a pass, and whether it is valid."""
    try:
        return (None, False) if token is None else (room.read(token), True)
    except PassExpired as late:
        return late.shown, False
    except PassRefused:
        return None, False


def _see(room: str, request: HttpRequest, **query: str) -> HttpResponse:
    """Redirect to the page, in the same language."""
    wanted = request.query_params.get("lang")
    language = {} if wanted is None else {"lang": language_of(wanted, "")}
    given = "&".join(f"{name}={value}" for name, value in {**language, **query}.items())
    return _redirect(f"./{quote(room)}{'?' if given else ''}{given}")


def _redirect(address: str) -> HttpResponse:
    return Response(b"", status_code=303, media_type=_HTML, headers={"location": address})
