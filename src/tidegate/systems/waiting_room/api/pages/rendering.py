"""Renders the waiting page as HTML, with durations in words."""

import math
import re
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response

from tidegate.http.asgi import HttpResponse
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.systems.waiting_room import Estimate, Inside, RoomState
from tidegate.systems.waiting_room import InLine as Waiting
from tidegate.systems.waiting_room.api.pages import page_state
from tidegate.systems.waiting_room.api.pages.page_state import LIVE, PageState, PageView, again_s, progress, title_of
from tidegate.systems.waiting_room.api.pages.texts import LANGUAGES, TEXTS, Language, say

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_IN_HOURS_FROM_S = 90 * _MINUTE
_FINE_MINUTES = 20
"""Above this, minutes are rounded to multiples of five, because estimates are not more exact."""
_LONGEST_HOURS = 12


def duration_text(language: Language, length: timedelta) -> str:
    """A duration in one unit, rounded down."""
    seconds = max(0, math.floor(length.total_seconds()))
    for unit, size, least in (("days", _DAY, 2 * _DAY), ("hours", _HOUR, 2 * _HOUR), ("minutes", _MINUTE, 2 * _MINUTE)):
        if seconds >= least or (seconds == size and unit != "days"):
            return say(language, unit, seconds // size)
    return say(language, "seconds", seconds)


def wait_text(language: Language, estimate: Estimate | None, *, is_paused: bool = False) -> str:
    """The estimated wait as an interval, no more exact than the estimate.

    `wait` in waiting.js does the same; a test compares them.
    """
    if is_paused:
        return say(language, "wait.paused")
    if estimate is None:
        return say(language, "wait.unknown")
    soonest_s, latest_s = estimate.soonest.total_seconds(), estimate.latest.total_seconds()
    if latest_s < _MINUTE:
        return say(language, "wait.moment")
    if latest_s <= _IN_HOURS_FROM_S:
        step = 5 if latest_s > _FINE_MINUTES * _MINUTE else 1
        return _interval(language, "minutes", *_rounded(soonest_s / _MINUTE, latest_s / _MINUTE, step))
    shortest, longest = _rounded(soonest_s / _HOUR, latest_s / _HOUR, 1)
    if longest <= _LONGEST_HOURS:
        return _interval(language, "hours", shortest, longest)
    if shortest == 0:
        return say(language, "wait.unknown")
    return say(language, "wait.long", min(shortest, _LONGEST_HOURS))


def _rounded(shortest: float, longest: float, step: int) -> tuple[int, int]:
    """Round an interval outwards to whole steps."""
    return math.floor(shortest / step) * step, math.ceil(longest / step) * step


def _interval(language: Language, unit: str, shortest: int, longest: int) -> str:
    if shortest == 0:
        return say(language, f"wait.within.{unit}", longest)
    if shortest == longest:
        return say(language, f"wait.about.{unit}", longest)
    return say(language, f"wait.between.{unit}", longest, **{"from": f"{shortest:,}"})


FOLDER = "assets"
_FILES = Path(__file__).with_name(FOLDER)
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}


class Assets:
    """All files, read once."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[bytes, str]] = {}
        self._names: dict[str, str] = {}
        for path in sorted(_FILES.iterdir()):
            if path.suffix in _KINDS:
                content = path.read_bytes()
                name = f"{path.stem}.{sha256(content).hexdigest()[:16]}{path.suffix}"
                self._names[path.name] = name
                self._answers[name] = content, _KINDS[path.suffix]

    def address(self, file: str) -> str:
        """The URL of a file, relative to the page of a room."""
        return f"{FOLDER}/{self._names[file]}"

    def answer(self, name: str) -> HttpResponse:
        """Serve a file by its versioned name."""
        found = self._answers.get(name)
        if found is None:
            raise RequestFailed(ProblemType.NOT_FOUND, "there is no such file; the page has the current names")
        return Response(found[0], media_type=found[1], headers=_FOR_EVER)


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'{shop}; frame-ancestors 'none'; base-uri 'none'"
)
_SITE = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(?=[/?#]|$)")
_HEADERS = {
    # With no-referrer, a browser would not show that a form was sent from this page.
    "referrer-policy": "same-origin",
    "vary": "Accept-Language, Cookie",
}
_STATUSES = {PageState.ABSENT: 404, PageState.UNAVAILABLE: 503, PageState.THROTTLED: 429}
_SPOKEN = ("wait.", "waiting.", "entering.title", "drawing.title")
"""Prefixes of the texts that the script of the page uses."""


class PageRenderer:
    """Renders pages from templates that are loaded once."""

    def __init__(self, assets: Assets) -> None:
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).with_name("templates")),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._template = environment.get_template("page.html")
        files = {"icon": "icon.svg", "style": "waiting.css", "script": "waiting.js", "puzzle": "puzzle.js"}
        self._assets = {name: assets.address(file) for name, file in files.items()}
        self._texts = {language: _spoken(language) for language in LANGUAGES}

    def page(self, view: PageView, language: Language, start: int | None, challenge: str = "") -> HttpResponse:
        """Render a view; `start` is the place of 0 % progress, `challenge` the puzzle to solve before joining."""
        plan, state = view.room.plan, view.state
        values = {
            "title": title_of(view.room),
            "commitment": view.room.commitment,
            "entrance": plan.entrance,
            "session": duration_text(language, plan.session),
            "abandon_after": duration_text(language, plan.abandon_after),
            "opens_in_ms": view.opens_in_ms,
            "opens_in": duration_text(language, timedelta(seconds=math.ceil(view.opens_in_ms / 1000))),
            "is_drawn": isinstance(view.standing, Waiting) and view.standing.place < 0,
            "is_paused": view.room.is_paused,
            **_waiting(view, language, start),
            **_inside(view, language),
            **_outside(view, language),
        }
        return self._render(state, view.room.name, language, values, view=view, start=start, challenge=challenge)

    def throttled(self, room: str, language: Language, title: str, wait_s: int) -> HttpResponse:
        """Render the page for an address from which too many visitors joined."""
        response = self.without_view(PageState.THROTTLED, room, language, title, span=timedelta(seconds=wait_s))
        response.headers["retry-after"] = str(wait_s)
        return response

    def without_view(
        self, state: PageState, room: str, language: Language, title: str = "", *, span: timedelta = timedelta()
    ) -> HttpResponse:
        """Render a state that needs no view."""
        values = {
            "title": title,
            "heading": f"{state}.title",
            "lead": say(language, f"{state}.lead", span=duration_text(language, span)),
            "hint": "",
            "can_join": False,
            "entrance": None,
            "opens_in_ms": 0,
        }
        return self._render(state, room, language, values)

    def _render(
        self,
        state: PageState,
        room: str,
        language: Language,
        values: dict[str, Any],
        *,
        view: PageView | None = None,
        start: int | None = None,
        challenge: str = "",
    ) -> HttpResponse:
        """Render the page of a room in one state and language.

        `values` are the texts of that state; `given` has what the script of the page needs.
        """

        def text_of(key: str, number: int | None = None, **filled: object) -> str:
            return say(language, key, number, **filled)

        room, again = quote(room), again_s(state, view)
        here = f"./{room}?lang={language}"
        heading = text_of(values["heading"] if state not in (*LIVE, PageState.INSIDE) else f"{state}.title")
        if view is not None and view.position is not None:
            heading = text_of("waiting.tab", view.position)
        given = {
            "language": language,
            "title": values["title"],
            "is_live": state in LIVE,
            "live_states": LIVE,
            "here": here,
            "again_s": again,
            "events": f"../v1/rooms/{room}/place/events",
            "place": f"../v1/rooms/{room}/place",
            "draw": f"../v1/rooms/{room}/draw",
            "cookie": page_state.pass_cookie(room),
            "start_cookie": page_state.start_cookie(room),
            "cookie_s": 0 if view is None else page_state.kept_s(view.room.plan),
            "start": start,
            "challenge": challenge,
            "puzzle_bits": 0 if view is None else view.room.plan.puzzle_bits,
            "puzzle": self._assets["puzzle"],
            "texts": self._texts[language] if state in LIVE else {},
        }
        html = self._template.render(
            **values,
            say=text_of,
            page_state=state.value,
            room=room,
            language=language,
            languages=[(each, TEXTS[each]["name"]) for each in LANGUAGES],
            names=" / ".join(str(TEXTS[each]["name"]) for each in LANGUAGES),
            tab=" · ".join(part for part in (heading, values["title"]) if part),
            here=here,
            again_s=again,
            is_live=state in LIVE,
            assets=self._assets,
            given=given,
        )
        headers = _HEADERS | {"content-security-policy": _policy(values["entrance"])}
        if state is PageState.UNAVAILABLE:
            headers["retry-after"] = str(again)
        return Response(html, status_code=_STATUSES.get(state, 200), headers=headers, media_type="text/html")


def _policy(entrance: str | None) -> str:
    """The content security policy. It allows forms to redirect to the shop, because a visitor admitted while
    sending the form is redirected there, and browsers check `form-action` for redirects too."""
    site = _SITE.match(entrance or "")
    return _POLICY.format(shop=f" {site[0]}" if site else "")


def _spoken(language: Language) -> dict[str, Any]:
    return {key: text for key, text in TEXTS[language].items() if key.startswith(_SPOKEN)}


def _waiting(view: PageView, language: Language, start: int | None) -> dict[str, Any]:
    position = view.position
    if position is None:
        return {"position": "", "progress": 0, "estimate": "", "behind": ""}
    behind = view.waiting - position
    return {
        "position": f"{position:,}",
        "progress": progress(start or position, position),
        "estimate": wait_text(language, view.estimate, is_paused=view.room.is_paused),
        "behind": say(language, "waiting.people", behind) if behind > 0 else say(language, "waiting.none"),
    }


def _inside(view: PageView, language: Language) -> dict[str, Any]:
    left_ms = view.standing.left_ms if isinstance(view.standing, Inside) else 0
    return {"left_ms": left_ms, "left": duration_text(language, timedelta(milliseconds=left_ms))}


def _outside(view: PageView, language: Language) -> dict[str, Any]:
    """Values for visitors that are neither in line nor inside."""
    state = view.state
    heading, lead, join = f"{state}.title", f"{state}.lead", "join.again"
    if state is PageState.JOIN:
        early = "join.early" if view.opens_in_ms else "join"
        heading, lead, join = f"{early}.title", f"{early}.lead", f"{early}.do"
    hint = ""
    if state in (PageState.OVER, PageState.LAPSED, PageState.LEFT) and not view.can_join:
        hint = say(language, "again.closed" if view.room.state is RoomState.CLOSED else "again.shop")
    span = duration_text(language, view.room.plan.abandon_after)
    return {
        "heading": heading,
        "hint": hint,
        "lead": say(language, lead, span=span) if lead in TEXTS[language] else "",
        "join": join,
        "can_join": view.can_join,
        "count": say(language, "join.count", view.waiting) if view.waiting else say(language, "join.none"),
    }
