"""Scenes as HTML."""

import math
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from tidegate.http.pages import cookies, words
from tidegate.http.pages.assets import Assets
from tidegate.http.pages.scene import LIVE, Scene, Sight, again_s, progress, title_of
from tidegate.http.pages.texts import LANGUAGES, TEXTS, Language, say
from tidegate.systems.waiting_room import Inside, RoomState, Waiting

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'{shop}; frame-ancestors 'none'; base-uri 'none'"
)
_SITE = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(?=[/?#]|$)")
_HEADERS = {
    # With none at all a browser would not tell us that a form is from our own page.
    "referrer-policy": "same-origin",
    "vary": "Accept-Language, Cookie",
}
_STATUSES = {Scene.ABSENT: 404, Scene.UNAVAILABLE: 503, Scene.THROTTLED: 429}
_SPOKEN = ("wait.", "waiting.", "entering.title", "drawing.title")
"""What the script of the page has to say."""


class Printer:
    """Makes pages."""

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

    def page(self, sight: Sight, language: Language, start: int | None, challenge: str = "") -> Response:
        """What was seen; `start` is where its progress begins, `challenge` what is to be solved before one may join."""
        plan, scene = sight.room.plan, sight.scene
        values = {
            "title": title_of(sight.room),
            "commitment": sight.room.commitment,
            "entrance": plan.entrance,
            "session": words.span(language, plan.session),
            "abandon_after": words.span(language, plan.abandon_after),
            "opens_in_ms": sight.opens_in_ms,
            "opens_in": words.span(language, timedelta(seconds=math.ceil(sight.opens_in_ms / 1000))),
            "is_drawn": isinstance(sight.standing, Waiting) and sight.standing.place < 0,
            "is_paused": sight.room.is_paused,
            **_waiting(sight, language, start),
            **_inside(sight, language),
            **_door(sight, language),
        }
        return self._print(scene, sight.room.name, language, values, sight=sight, start=start, challenge=challenge)

    def throttled(self, room: str, language: Language, title: str, wait_s: int) -> Response:
        """Too many have joined from this address."""
        response = self.without_sight(Scene.THROTTLED, room, language, title, span=timedelta(seconds=wait_s))
        response.headers["retry-after"] = str(wait_s)
        return response

    def without_sight(
        self, scene: Scene, room: str, language: Language, title: str = "", *, span: timedelta = timedelta()
    ) -> Response:
        """What can be said where nothing was seen."""
        values = {
            "title": title,
            "heading": f"{scene}.title",
            "lead": say(language, f"{scene}.lead", span=words.span(language, span)),
            "hint": "",
            "can_join": False,
            "entrance": None,
            "opens_in_ms": 0,
        }
        return self._print(scene, room, language, values)

    def _print(
        self,
        scene: Scene,
        room: str,
        language: Language,
        values: dict[str, Any],
        *,
        sight: Sight | None = None,
        start: int | None = None,
        challenge: str = "",
    ) -> Response:
        def told(key: str, number: int | None = None, **filled: object) -> str:
            return say(language, key, number, **filled)

        room, again = quote(room), again_s(scene, sight)
        here = f"./{room}?lang={language}"
        heading = told(values["heading"] if scene not in (*LIVE, Scene.INSIDE) else f"{scene}.title")
        if sight is not None and sight.position is not None:
            heading = told("waiting.tab", sight.position)
        given = {
            "language": language,
            "title": values["title"],
            "is_live": scene in LIVE,
            "scenes": LIVE,
            "here": here,
            "again_s": again,
            "events": f"../v1/rooms/{room}/place/events",
            "place": f"../v1/rooms/{room}/place",
            "draw": f"../v1/rooms/{room}/draw",
            "cookie": cookies.pass_cookie(room),
            "start_cookie": cookies.start_cookie(room),
            "cookie_s": 0 if sight is None else cookies.kept_s(sight.room.plan),
            "start": start,
            "challenge": challenge,
            "puzzle_bits": 0 if sight is None else sight.room.plan.puzzle_bits,
            "puzzle": self._assets["puzzle"],
            "texts": self._texts[language] if scene in LIVE else {},
        }
        html = self._template.render(
            **values,
            say=told,
            scene=scene.value,
            room=room,
            language=language,
            languages=[(each, TEXTS[each]["name"]) for each in LANGUAGES],
            names=" / ".join(str(TEXTS[each]["name"]) for each in LANGUAGES),
            tab=" · ".join(part for part in (heading, values["title"]) if part),
            here=here,
            again_s=again,
            is_live=scene in LIVE,
            assets=self._assets,
            given=given,
        )
        headers = _HEADERS | {"content-security-policy": _policy(values["entrance"])}
        if scene is Scene.UNAVAILABLE:
            headers["retry-after"] = str(again)
        return Response(html, _STATUSES.get(scene, 200), headers, "text/html")


def _policy(entrance: str | None) -> str:
    """What the page may do. Who is let in while he presses the button is sent to the shop by what follows the form,
    which a browser allows only where the page did."""
    site = _SITE.match(entrance or "")
    return _POLICY.format(shop=f" {site[0]}" if site else "")


def _spoken(language: Language) -> dict[str, Any]:
    return {key: text for key, text in TEXTS[language].items() if key.startswith(_SPOKEN)}


def _waiting(sight: Sight, language: Language, start: int | None) -> dict[str, Any]:
    position = sight.position
    if position is None:
        return {"position": "", "progress": 0, "estimate": "", "behind": ""}
    behind = sight.waiting - position
    return {
        "position": f"{position:,}",
        "progress": progress(start or position, position),
        "estimate": words.wait(language, sight.estimate, is_paused=sight.room.is_paused),
        "behind": say(language, "waiting.people", behind) if behind > 0 else say(language, "waiting.nobody"),
    }


def _inside(sight: Sight, language: Language) -> dict[str, Any]:
    left_ms = sight.standing.left_ms if isinstance(sight.standing, Inside) else 0
    return {"left_ms": left_ms, "left": words.span(language, timedelta(milliseconds=left_ms))}


def _door(sight: Sight, language: Language) -> dict[str, Any]:
    """For those who are neither in line nor inside."""
    scene = sight.scene
    heading, lead, join = f"{scene}.title", f"{scene}.lead", "join.again"
    if scene is Scene.JOIN:
        early = "join.early" if sight.opens_in_ms else "join"
        heading, lead, join = f"{early}.title", f"{early}.lead", f"{early}.do"
    hint = ""
    if scene in (Scene.OVER, Scene.LAPSED, Scene.LEFT) and not sight.can_join:
        hint = say(language, "again.closed" if sight.room.state is RoomState.CLOSED else "again.shop")
    span = words.span(language, sight.room.plan.abandon_after)
    return {
        "heading": heading,
        "hint": hint,
        "lead": say(language, lead, span=span) if lead in TEXTS[language] else "",
        "join": join,
        "can_join": sight.can_join,
        "count": say(language, "join.count", sight.waiting) if sight.waiting else say(language, "join.nobody"),
    }
