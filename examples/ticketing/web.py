"""The shop over HTTP: its own pages and API, and Tidegate's waiting page beside them."""

import secrets
from collections.abc import Callable
from pathlib import Path

from examples.ticketing.answers import EXPECTED, Refusal
from examples.ticketing.api import Api, answered_refusal, refused
from examples.ticketing.pages import Pages
from examples.ticketing.shop import Shop
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.http import Binding, HttpService, build_application
from tidegate.systems.waiting_room import room_api

_STATIC = Path(__file__).parent / "static"
_OF_ROOMS = ("/rooms/", "/v1/rooms/")
_UNKNOWN = {404: Refusal(404, "not-found", "there is no such page")}


def serve(shop: Shop, binding: Binding) -> HttpService:
    """The shop as a service among the others of its process."""
    rooms, close = _rooms(shop)
    return HttpService(_Either(_shop(shop), rooms), binding, on_stop=close)


def _shop(shop: Shop) -> Starlette:
    """The routes of the shop."""
    pages = Pages(shop)

    async def refuse(request: Request, error: Exception) -> Response:
        return refused(error) if _is_api(request) else pages.refused(error)

    async def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        refusal = _UNKNOWN.get(status, Refusal(status, "invalid", "that cannot be done here"))
        return answered_refusal(refusal) if _is_api(request) else pages.refusal(refusal)

    return Starlette(
        routes=[*Api(shop).routes(), *pages.routes(), Mount("/static", StaticFiles(directory=_STATIC))],
        exception_handlers={**dict.fromkeys(EXPECTED, refuse), HTTPException: unknown},
    )


def _is_api(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def _rooms(shop: Shop) -> tuple[ASGIApp, Callable[[], None]]:
    """Return the application of Tidegate's routes and pages, and the function that ends its event streams."""
    http = shop.parts.settings.http
    # Routes for operators need an API key. Without one in the settings, a random key is set: this port is public.
    settings = http if http.keys else http.model_copy(update={"api_key": SecretStr(secrets.token_hex(32))})
    api = room_api(shop.rooms, settings)
    return build_application(api.routes, settings), api.close


class _Either:
    """Sends what concerns rooms to Tidegate, and everything else to the shop."""

    def __init__(self, ours: ASGIApp, rooms: ASGIApp) -> None:
        self._ours, self._rooms = ours, rooms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        is_theirs = scope["type"] == "http" and scope["path"].startswith(_OF_ROOMS)
        await (self._rooms if is_theirs else self._ours)(scope, receive, send)
